"""Linear and logarithmic scales of plots, and the round values at their ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spbench.record.number_formatting import format_number
from spbench.stats.histogram import find_axis_end
from spbench.stats.sorted_samples import SortedSamples

LOG_FROM = 100
"""The ratio of the ends from which on a scale is logarithmic by default."""
SAMPLES_LOG_FROM = 10
"""The same for samples, which are without those far out."""
_WHISKER_SHARE = 0.5
"""Share of the range of the values that whiskers add to a scale at each end, at most."""
_MIN_WHISKER_SHARE = 0.05
"""The same as a share of the largest value, for values that are almost equal."""
MAX_RATIO_SPREAD = 1.05
"""The largest quotient of two factors that count as equal."""
_ROUND_FACTORS = (1, 2, 2.5, 5, 10)


def drop_infinite(value: float | None) -> float | None:
    """Return the value, or None if it is infinite, not a number or None."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from ``low`` to ``high``, both finite; positive where ``log``."""

    low: float
    high: float
    log: bool = False

    def fraction(self, value: float) -> float:
        """Return 0 up to ``low``, 1 from ``high`` on, and 0.5 if both are equal."""
        clamped = max(self.low, min(value, self.high))
        low, value, high = map(self._transform, (self.low, clamped, self.high))
        # Divided by the largest first: the difference of two huge values overflows.
        largest = max(abs(low), abs(high))
        if low == high or largest == 0:
            return 0.5
        scaled_span = high / largest - low / largest
        return (value / largest - low / largest) / scaled_span if scaled_span > 0 else 0.5

    def to_index(self, value: float, count: int) -> int:
        """Return the index of a value among ``count`` equally spaced positions."""
        return round(self.fraction(value) * (count - 1))

    def ticks(self, max_ticks: int) -> list[float]:
        """Return up to ``max_ticks`` round numbers in the range, or its ends."""
        if max_ticks < 2 or self.low == self.high:
            return [self.low]
        ticks = self._list_decades(max_ticks) if self.log else self._list_round_steps(max_ticks)
        if self.log and len(ticks) < 2:
            ticks = self._list_parts_of_decades(max_ticks)
        return ticks if len(ticks) > 1 else [self.low, self.high]

    def _transform(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _list_round_steps(self, max_ticks: int) -> list[float]:
        span = self.high - self.low
        if not 1e-300 < span < 1e300 or span < 1e-12 * max(abs(self.low), abs(self.high)):
            return []
        power_of_ten = 10.0 ** math.floor(math.log10(span / max_ticks))
        for round_step in (power_of_ten * round_factor for round_factor in _ROUND_FACTORS):
            first_multiple = math.ceil(self.low / round_step)
            last_multiple = math.floor(self.high / round_step)
            if last_multiple - first_multiple < max_ticks:
                return [
                    multiple * round_step for multiple in range(first_multiple, last_multiple + 1)
                ]
        return []

    def _list_parts_of_decades(self, max_ticks: int) -> list[float]:
        """Return the values 1, 2 and 5 times a power of ten in a short range."""
        first_power = math.floor(math.log10(self.low))
        last_power = math.floor(math.log10(self.high))
        values = [
            factor * 10.0**power
            for power in range(first_power, last_power + 1)
            for factor in (1, 2, 5)
        ]
        return [value for value in values if self.low <= value <= self.high][:max_ticks]

    def _list_decades(self, max_ticks: int) -> list[float]:
        first_power = math.ceil(math.log10(self.low))
        last_power = math.floor(math.log10(self.high))
        stride = max(1, math.ceil((last_power - first_power + 1) / max_ticks))
        return [10.0**power for power in range(first_power, last_power + 1, stride)]


def fit_scale(values: Iterable[float], log: bool | None = None) -> Scale:
    """Return the scale of the values' range, or of 0 to 1 without values.

    Args:
        values: Finite values.
        log: Whether the scale is logarithmic; None: if the range is wide. With values that are not
            positive, the scale is linear.
    """
    known_values = list(values)
    if not known_values:
        return Scale(0.0, 1.0)
    low = min(known_values)
    high = max(known_values)
    if low <= 0:
        return Scale(low, high)
    return Scale(low, high, high / low >= LOG_FROM if log is None else log)


def cap_whiskers(values: Iterable[float], ends: Iterable[float]) -> list[float]:
    """Return the ends of whiskers for a scale, so that they do not squash the values.

    Ends far beyond the values are replaced by nearer ones.
    """
    known_values = list(values)
    if not known_values:
        return list(ends)
    low = min(known_values)
    high = max(known_values)
    margin = max(_WHISKER_SHARE * (high - low), _MIN_WHISKER_SHARE * abs(high))
    return [min(max(end, low - margin), high + margin) for end in ends]


def has_equal_ratios(values: Iterable[float]) -> bool:
    """Return whether at least three values grow by equal factors, such as 10, 20, 40."""
    ordered = sorted(set(values))
    if len(ordered) < 3 or ordered[0] <= 0:
        return False
    ratios = [second / first for first, second in pairwise(ordered)]
    return max(ratios) / min(ratios) < MAX_RATIO_SPREAD


def fit_sample_scale(sample_sets: Sequence[SortedSamples]) -> Scale:
    """Return the scale of samples in all charts; a few far out are beyond its end.

    Args:
        sample_sets: At least one set of samples, which share the scale.
    """
    low = min(samples.smallest for samples in sample_sets)
    high = max(find_axis_end(samples) for samples in sample_sets)
    return Scale(low, high, low > 0 and high / low >= SAMPLES_LOG_FROM)


def format_round_value(value: float) -> str:
    """Return a round value without trailing zeros, such as ``0.25`` or ``64``."""
    text = format_number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_ticks(ticks: Sequence[float], log: bool = False) -> list[str]:
    """Return the ticks as text, with enough digits to distinguish them."""
    if log or len(ticks) < 2:
        return [format_round_value(tick) for tick in ticks]
    tick_distance = abs(ticks[1] - ticks[0])
    largest = max(abs(tick) for tick in ticks)
    if largest >= 1e7 or tick_distance < 1e-4 or not math.isfinite(tick_distance):
        return [format_number(tick) for tick in ticks]
    decimals = max(0, -math.floor(math.log10(tick_distance)))
    if (
        round(tick_distance, decimals) != tick_distance and decimals < 6
    ):  # 2.5 and 0.25 need one more digit
        decimals += 1
    return [f"{tick:.{decimals}f}" for tick in ticks]
