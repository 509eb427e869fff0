"""From values to places: linear and logarithmic scales, and the few round numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spbench.record.number_formatting import format_number

LOG_FROM = 100
"""A range of this factor or more is drawn on a logarithmic scale, unless told otherwise."""
_ROUND = (1, 2, 2.5, 5, 10)


def drop_infinite(value: float | None) -> float | None:
    """Return the value; None where there is none to draw."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from ``low`` to ``high``, both finite; positive where ``log``."""

    low: float
    high: float
    log: bool = False

    def fraction(self, value: float) -> float:
        """Return 0 at ``low`` and below, 1 at ``high`` and above; 0.5 where both are one."""
        inside = max(self.low, min(value, self.high))
        low, value, high = (self._even(one) for one in (self.low, inside, self.high))
        # Divided by the largest first: the difference of two huge values overflows.
        size = max(abs(low), abs(high))
        if low == high or size == 0:
            return 0.5
        span = high / size - low / size
        return (value / size - low / size) / span if span > 0 else 0.5

    def to_index(self, value: float, count: int) -> int:
        """Return which of ``count`` places, from 0, the value is in."""
        return round(self.fraction(value) * (count - 1))

    def ticks(self, most: int) -> list[float]:
        """Return up to ``most`` round numbers from low to high; where none fit, the ends."""
        if most < 2 or self.low == self.high:
            return [self.low]
        ticks = self._decades(most) if self.log else self._steps(most)
        return ticks if len(ticks) > 1 else [self.low, self.high]

    def _even(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _steps(self, most: int) -> list[float]:
        span = self.high - self.low
        if not 1e-300 < span < 1e300 or span < 1e-12 * max(abs(self.low), abs(self.high)):
            return []
        base = 10.0 ** math.floor(math.log10(span / most))
        for step in (base * factor for factor in _ROUND):
            first = math.ceil(self.low / step)
            last = math.floor(self.high / step)
            if last - first < most:
                return [number * step for number in range(first, last + 1)]
        return []

    def _decades(self, most: int) -> list[float]:
        first = math.ceil(math.log10(self.low))
        last = math.floor(math.log10(self.high))
        every = max(1, math.ceil((last - first + 1) / most))
        return [10.0**power for power in range(first, last + 1, every)]


def fit_scale(values: Iterable[float], log: bool | None = None) -> Scale:
    """Return the scale that holds the values; 0 to 1 where there are none.

    Args:
        values: What is to be drawn, finite.
        log: Whether to draw logarithms; None: where the range is wide. Values that are not
            positive have none, and are drawn on a linear scale.
    """
    known = list(values)
    if not known:
        return Scale(0.0, 1.0)
    low = min(known)
    high = max(known)
    if low <= 0:
        return Scale(low, high)
    return Scale(low, high, high / low >= LOG_FROM if log is None else log)


def format_round_value(value: float) -> str:
    """Return a round value without the zeros behind its last digit: ``0.25``, ``64``."""
    word = format_number(value)
    return word.rstrip("0").rstrip(".") if "." in word else word


def format_ticks(ticks: Sequence[float], log: bool = False) -> list[str]:
    """Return the ticks in as many figures as tell them apart."""
    if log or len(ticks) < 2:
        return [format_round_value(tick) for tick in ticks]
    step = abs(ticks[1] - ticks[0])
    largest = max(abs(tick) for tick in ticks)
    if largest >= 1e7 or step < 1e-4 or not math.isfinite(step):
        return [format_number(tick) for tick in ticks]
    places = max(0, -math.floor(math.log10(step)))
    if round(step, places) != step and places < 6:  # 2.5 and 0.25 need a figure more
        places += 1
    return [f"{tick:.{places}f}" for tick in ticks]
