"""Input data of a collective by seed, so that every rank can make the inputs of all others.

Values repeat after `PERIOD` elements, so that also a large vector is made and checked element by
element in little time and memory. It is a prime: no chunk is a multiple of it by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from spbench_parallel.verify.worst_error import WorstError

PERIOD = 1_048_573

InputKind = Literal["whole", "random"]
Values = np.ndarray[Any, np.dtype[Any]]
"""One period, or less of a shorter vector: float64, or int64 for integer formats."""

_MOST = 1 << 30
"""The largest number in integer formats: no sum of such numbers overflows 32 bits."""
_TWOS = 8
"""The most ranks with a factor of two in the same product."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The distribution of the ranks' inputs.

    Attributes:
        kind: ``whole`` numbers, whose reduction is exact in any order, or ``random`` ones of the
            whole precision.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        dtype: The format.
        ranks: The number of ranks.
    """

    kind: InputKind
    op: str
    dtype: torch.dtype
    ranks: int

    def draw_input(self, seed: int, rank: int, count: int) -> Values:
        """Return the input of a rank: its first elements, at most a period.

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
        """Return the number up to which the format has every whole number."""
        if not self.dtype.is_floating_point:
            return _MOST
        return min(_MOST, int(2.0 / torch.finfo(self.dtype).eps))

    def _factors(self, bits: Values, rank: int) -> Values:
        """Return factors whose product stays in range: plus or minus 1, and a few of 2."""
        if self.dtype.is_floating_point and self.kind == "random":
            return self._rounded(0.9 + 0.2 * ((bits >> np.uint64(11)) * 2.0**-53))
        signs = 1 - 2 * (bits % np.uint64(2)).astype(np.int64)
        twos = (bits >> np.uint64(1)) % np.uint64(2) == 1
        twos &= self._turn(rank, _TWOS, len(bits))
        return self._converted(np.where(twos, 2 * signs, signs))

    def _turn(self, rank: int, most: int, count: int) -> Values:
        """Return the elements at which a rank is one of the ``most`` whose input may be large."""
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
    """Fill a vector with values, periodically, beginning with value ``first``."""
    period = torch.from_numpy(values).to(vector.dtype).to(vector.device)
    for at, start, count in _stretches(vector.numel(), len(values), first):
        vector[at : at + count] = period[start : start + count]


def _stretches(count: int, period: int, first: int) -> list[tuple[int, int, int]]:
    """Return the stretches of a vector: begin, begin within the period, and length of each."""
    stretches = []
    at = 0
    while at < count:
        start = (first + at) % period
        length = min(period - start, count - at)
        stretches.append((at, start, length))
        at += length
    return stretches


@dataclass(frozen=True, slots=True)
class ExpectedPeriod:
    """One period of an expected result.

    Attributes:
        values: The expected values in float64 or int64.
        rest: Their rounding errors, to be added; of the same shape.
        tolerance: The largest difference that rounding explains; of the same shape.
    """

    values: Values
    correction: Values
    tolerance: Values


def compare(
    vector: torch.Tensor, expected: ExpectedPeriod, first: int = 0, offset: int = 0
) -> WorstError:
    """Compare a part of a result with its expected values, element by element.

    Args:
        vector: The part.
        expected: One period of the expected values.
        first: The element of the periodic values that the part begins with.
        offset: The element of the result that the part begins with, for messages.
    """
    worst = WorstError()
    for begin, start, count in _stretches(vector.numel(), len(expected.values), first):
        part = vector[begin : begin + count].cpu()
        _compare(part, expected, slice(start, start + count), offset + begin, worst)
    return worst


def _compare(
    part: torch.Tensor, expected: ExpectedPeriod, where: slice, at: int, worst: WorstError
) -> None:
    wide = torch.float64 if part.dtype.is_floating_point else torch.int64
    got = part.to(wide).numpy()
    values = expected.values[where]
    tolerance = expected.tolerance[where]
    # An element that was not written is a NaN; infinities may be subtracted.
    with np.errstate(invalid="ignore"):
        errors = np.abs((got - values) - expected.correction[where]).astype(np.float64)

    def detail(index: int) -> str:
        if errors[index] <= tolerance[index]:
            return ""
        return f"element {at + index} is {got[index]:.9g}, not {values[index]:.9g}"

    worst.add_array(errors, tolerance, detail)
