"""What ranks give to a collective, so that every rank knows what all others gave.

Values repeat after `PERIOD` elements: a prime, which no chunk is a multiple of by chance, so that
also a large vector is made and checked element by element in little time and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

PERIOD = 1_048_573

Kind = Literal["whole", "random"]
Values = np.ndarray[Any, np.dtype[Any]]
"""One period, or less of a shorter vector: float64, or int64 for whole numbers' formats."""

_MOST = 1 << 30
"""Up to where whole numbers go in formats of whole numbers: no sum leaves 32 bits."""
_TWOS = 8
"""Ranks that give a factor of two to the same product."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Which numbers ranks give.

    Attributes:
        kind: ``whole`` numbers, of which no reduction is rounded in any order, or ``random`` ones
            of the whole precision.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        dtype: The format.
        ranks: How many ranks give some.
    """

    kind: Kind
    op: str
    dtype: torch.dtype
    ranks: int

    def of(self, seed: int, rank: int, count: int) -> Values:
        """Return what a rank gives: the first elements, at most a period.

        Args:
            seed: The rank's seed.
            rank: The rank.
            count: Elements of its vector.
        """
        bits = _mixed(seed, min(count, PERIOD))
        if self.op == "prod":
            return self._factors(bits, rank)
        if self.dtype.is_floating_point and self.kind == "random":
            return self._rounded((bits >> np.uint64(11)) * 2.0**-52 - 1.0)
        limit = self._largest()
        share = max(1, limit // self.ranks) if self.op == "sum" else limit
        whole = (bits % np.uint64(2 * share + 1)).astype(np.int64) - share
        if self.op == "sum" and self.ranks > limit:
            whole[~self._turn(rank, limit, len(whole))] = 0
        return self._converted(whole)

    def _largest(self) -> int:
        """Return up to where the format has every whole number."""
        if not self.dtype.is_floating_point:
            return _MOST
        return min(_MOST, int(2.0 / torch.finfo(self.dtype).eps))

    def _factors(self, bits: Values, rank: int) -> Values:
        """Return factors whose product stays in range: plus or minus 1, here and there 2."""
        if self.dtype.is_floating_point and self.kind == "random":
            return self._rounded(0.9 + 0.2 * ((bits >> np.uint64(11)) * 2.0**-53))
        signs = 1 - 2 * (bits % np.uint64(2)).astype(np.int64)
        twos = (bits >> np.uint64(1)) % np.uint64(2) == 1
        twos &= self._turn(rank, _TWOS, len(bits))
        return self._converted(np.where(twos, 2 * signs, signs))

    def _turn(self, rank: int, most: int, count: int) -> Values:
        """Return at which elements a rank is one of the ``most`` that may give something."""
        stride = -(-self.ranks // most)
        turns: Values = (np.arange(count) + rank) % stride == 0
        return turns

    def _converted(self, whole: Values) -> Values:
        return whole.astype(np.float64) if self.dtype.is_floating_point else whole

    def _rounded(self, values: Values) -> Values:
        rounded: Values = torch.from_numpy(values).to(self.dtype).to(torch.float64).numpy()
        return rounded


def _mixed(seed: int, count: int) -> Values:
    """Return 64 random bits an element (SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    step = np.uint64(0x9E3779B97F4A7C15)
    bits = (np.arange(1, count + 1, dtype=np.uint64) * step) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def fill(vector: torch.Tensor, values: Values, first: int = 0) -> None:
    """Write values over a vector, from the value of element ``first`` on, again and again."""
    period = torch.from_numpy(values).to(vector.dtype).to(vector.device)
    for at, start, count in _stretches(vector.numel(), len(values), first):
        vector[at : at + count] = period[start : start + count]


def _stretches(count: int, period: int, first: int) -> list[tuple[int, int, int]]:
    """Return where stretches of a vector begin, where in the period, and how long they are."""
    stretches, at = [], 0
    while at < count:
        start = (first + at) % period
        length = min(period - start, count - at)
        stretches.append((at, start, length))
        at += length
    return stretches


@dataclass(frozen=True, slots=True)
class ExpectedPeriod:
    """What a period of a result must be.

    Attributes:
        values: The outcome; `rest` is what of it float64 rounds off.
        rest: Of the same shape.
        tolerance: The largest difference that rounding explains, of the same shape; 0: none.
    """

    values: Values
    rest: Values
    tolerance: Values


@dataclass(frozen=True, slots=True)
class Worst:
    """Wrong elements, and the one that is furthest beyond its tolerance.

    Attributes:
        wrong: How many elements are wrong.
        error: The difference of that one; a NaN where it is no number.
        tolerance: What was allowed of it.
        detail: Where it is, and what it is.
    """

    wrong: int = 0
    error: float = 0.0
    tolerance: float = 0.0
    detail: str = ""

    @property
    def excess(self) -> float:
        """By how much the error is beyond the tolerance; negative where it is within."""
        excess = self.error - self.tolerance
        return excess if excess == excess else float("inf")

    def joined(self, other: Worst) -> Worst:
        """Return both together, with the place of the worse one."""
        worse = max(self, other, key=lambda one: one.excess)
        return Worst(self.wrong + other.wrong, worse.error, worse.tolerance, worse.detail)


NOTHING_COMPARED = Worst(tolerance=float("inf"))
"""What every comparison is worse than."""


def compare(vector: torch.Tensor, expected: ExpectedPeriod, first: int = 0, at: int = 0) -> Worst:
    """Compare a part of a result with what it must be, element by element.

    Args:
        vector: The part.
        expected: A period of what it must be.
        first: The element of the period, or of what repeats it, that the part begins with.
        at: The element of the result that the part begins with, to name it.
    """
    worst = NOTHING_COMPARED
    for begin, start, count in _stretches(vector.numel(), len(expected.values), first):
        part = vector[begin : begin + count].cpu()
        found = _compare(part, expected, slice(start, start + count), at + begin)
        worst = worst.joined(found)
    return worst


def _compare(part: torch.Tensor, expected: ExpectedPeriod, where: slice, at: int) -> Worst:
    wide = torch.float64 if part.dtype.is_floating_point else torch.int64
    got = part.to(wide).numpy()
    values, tolerance = expected.values[where], expected.tolerance[where]
    # What was not written is a NaN, or an infinity less another.
    with np.errstate(invalid="ignore"):
        errors = np.abs((got - values) - expected.rest[where]).astype(np.float64)
    excess = errors - tolerance
    wrong = ~(excess <= 0.0)
    index = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
    detail = f"element {at + index} is {got[index]:.9g}, not {values[index]:.9g}"
    count = int(np.count_nonzero(wrong))
    return Worst(count, float(errors[index]), float(tolerance[index]), detail if count else "")
