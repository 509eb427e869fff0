"""Seeded input data of a collective, which every rank can make for all others.

Values repeat after `PERIOD` elements, so that making and checking a large vector takes little time
and memory. The period is a prime, so that no chunk is a multiple of it by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from spbench_parallel.verify.worst_error import WorstError

PERIOD = 1_048_573

InputKind = Literal["whole", "random"]
Values = np.ndarray[Any, np.dtype[Any]]
"""One period, or a shorter vector: float64, or int64 for integer formats."""

_MAX_INTEGER = 1 << 30
"""The largest number in integer formats, chosen so that no sum overflows 32 bits."""
_MAX_TWOS = 8
"""The most ranks with a factor of two in the same product."""


@dataclass(frozen=True, slots=True)
class InputDistribution:
    """The distribution of the ranks' inputs.

    Attributes:
        kind: ``whole`` numbers with an exact reduction in any order, or ``random`` numbers of full
            precision.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        dtype: The format.
        ranks: The number of ranks.
    """

    kind: InputKind
    op: str
    dtype: torch.dtype
    ranks: int

    def draw_input(
        self, seed: int, rank: int, count: int, *, period_elements: int = PERIOD
    ) -> Values:
        """Return the first elements of a rank's input, at most one period.

        Args:
            seed: The rank's seed.
            rank: The rank.
            count: Elements of its vector.
            period_elements: Elements after which values repeat.
        """
        bits = _draw_random_bits(seed, min(count, period_elements))
        if self.op == "prod":
            return self._draw_factors(bits, rank)
        if self.dtype.is_floating_point and self.kind == "random":
            return self._round_to_dtype((bits >> np.uint64(11)) * 2.0**-52 - 1.0)
        max_exact = self._compute_max_exact()
        max_magnitude = max(1, max_exact // self.ranks) if self.op == "sum" else max_exact
        numbers = (bits % np.uint64(2 * max_magnitude + 1)).astype(np.int64) - max_magnitude
        if self.op == "sum" and self.ranks > max_exact:
            numbers[~self._may_be_large(rank, max_exact, len(numbers))] = 0
        return self._convert(numbers)

    def _compute_max_exact(self) -> int:
        """Return the largest number up to which the format has every whole number."""
        if not self.dtype.is_floating_point:
            return _MAX_INTEGER
        return min(_MAX_INTEGER, int(2.0 / torch.finfo(self.dtype).eps))

    def _draw_factors(self, bits: Values, rank: int) -> Values:
        """Return factors with a product in range: plus or minus 1, and a few of 2."""
        if self.dtype.is_floating_point and self.kind == "random":
            return self._round_to_dtype(0.9 + 0.2 * ((bits >> np.uint64(11)) * 2.0**-53))
        signs = 1 - 2 * (bits % np.uint64(2)).astype(np.int64)
        is_two = (bits >> np.uint64(1)) % np.uint64(2) == 1
        is_two &= self._may_be_large(rank, _MAX_TWOS, len(bits))
        return self._convert(np.where(is_two, 2 * signs, signs))

    def _may_be_large(self, rank: int, count_large: int, count: int) -> Values:
        """Return at which elements a rank is one of ``count_large`` with large inputs."""
        stride = -(-self.ranks // count_large)
        is_large: Values = (np.arange(count) + rank) % stride == 0
        return is_large

    def _convert(self, numbers: Values) -> Values:
        return numbers.astype(np.float64) if self.dtype.is_floating_point else numbers

    def _round_to_dtype(self, values: Values) -> Values:
        rounded: Values = torch.from_numpy(values).to(self.dtype).to(torch.float64).numpy()
        return rounded


def _draw_random_bits(seed: int, count: int) -> Values:
    """Return 64 random bits per element by SplitMix64.

    Source: Steele, Lea and Flood, OOPSLA 2014.
    """
    increment = np.uint64(0x9E3779B97F4A7C15)
    bits = (np.arange(1, count + 1, dtype=np.uint64) * increment) + np.uint64(seed)
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(multiplier)
    return bits ^ (bits >> np.uint64(31))


def fill(vector: torch.Tensor, values: Values, first: int = 0) -> None:
    """Fill a vector with periodic values, starting with value ``first``."""
    period = torch.from_numpy(values).to(vector.dtype).to(vector.device)
    for offset, start, count in _split_periods(vector.numel(), len(values), first):
        vector[offset : offset + count] = period[start : start + count]


class _Stretch(NamedTuple):
    """Elements of a vector that are adjacent in one period.

    Attributes:
        offset: The first element in the vector.
        start: The first element in the period.
        length: The number of elements.
    """

    offset: int
    start: int
    length: int


def _split_periods(count: int, period: int, first: int) -> list[_Stretch]:
    """Return the stretches of a vector that starts with value ``first`` of a period."""
    stretches = []
    offset = 0
    while offset < count:
        start = (first + offset) % period
        length = min(period - start, count - offset)
        stretches.append(_Stretch(offset, start, length))
        offset += length
    return stretches


@dataclass(frozen=True, slots=True)
class ExpectedPeriod:
    """One period of an expected result.

    Attributes:
        values: The expected values in float64 or int64.
        correction: The rounding errors of `values`, to be added; of the same shape.
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
    for part_first, start, count in _split_periods(vector.numel(), len(expected.values), first):
        part = vector[part_first : part_first + count].cpu()
        _compare(part, expected, slice(start, start + count), offset + part_first, worst)
    return worst


def _compare(
    part: torch.Tensor, expected: ExpectedPeriod, section: slice, offset: int, worst: WorstError
) -> None:
    wide_dtype = torch.float64 if part.dtype.is_floating_point else torch.int64
    actual = part.to(wide_dtype).numpy()
    values = expected.values[section]
    tolerance = expected.tolerance[section]
    # Unwritten elements are NaN, and a difference of infinities is invalid, too.
    with np.errstate(invalid="ignore"):
        errors = np.abs((actual - values) - expected.correction[section]).astype(np.float64)

    def detail(index: int) -> str:
        if errors[index] <= tolerance[index]:
            return ""
        return f"element {offset + index} is {actual[index]:.9g}, not {values[index]:.9g}"

    worst.add_array(errors, tolerance, detail)
