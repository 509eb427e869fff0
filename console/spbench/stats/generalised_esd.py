"""The generalised test of extreme deviates: the values that are out of line with all others.

Rosner, Percentage Points for a Generalized ESD Many-Outlier Procedure, Technometrics 25, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from spbench.stats.summary import median

FEWEST = 10
"""The values from which on the test can tell; of fewer it would hardly ever name one."""
MOST_SHARE = 4
"""One in so many values can be out of line; where more are, they are a kind of their own."""
_STEPS = 10_000
_TINY = 1e-300
_PRECISE = 1e-12

Key = TypeVar("Key", bound=Hashable)


def standing_out(values: Mapping[Key, float], chance: float) -> dict[Key, float]:
    """Return the values that are too large compared with the others (Rosner 1983), less the median.

    Values that are too small are found and left out as well, so that they hide none; they are not
    returned. It never names one of fewer than `FEWEST`.

    Args:
        values: Values that are normally distributed but for those out of line: logs of times.
        chance: The chance that one of them is named where none is out of line.
    """
    if len(values) < FEWEST:
        return {}
    middle = median(values.values())
    ordered = sorted(value - middle for value in values.values())
    end = _within(ordered, chance)
    if end == len(ordered):
        return {}
    least = ordered[end]
    return {key: value - middle for key, value in values.items() if value - middle >= least}


def _within(ordered: list[float], chance: float) -> int:
    """Return the number of values, of those that rise, that are not too large.

    The farthest value is taken away again and again; as many are out of line as had been taken when
    one was last too far for what was then left.
    """
    low = 0
    high = len(ordered)
    end = len(ordered)
    total = math.fsum(ordered)
    squares = math.fsum(value * value for value in ordered)
    for _ in range(max(1, len(ordered) // MOST_SHARE)):
        count = high - low
        mean = total / count
        variance = (squares - total * mean) / (count - 1)
        if variance <= _PRECISE * squares / count:
            break
        upper = ordered[high - 1] - mean >= mean - ordered[low]
        value = ordered[high - 1] if upper else ordered[low]
        low, high = (low, high - 1) if upper else (low + 1, high)
        total, squares = total - value, squares - value * value
        if _chance_of((value - mean) ** 2 / variance, count) <= chance / count:
            end = high
    return end


def _chance_of(deviate: float, count: int) -> float:
    """Return the chance that one of ``count`` values has a squared deviate as large as this.

    A deviate is the distance from the mean in standard deviations, both of all the values.
    """
    freedom = count - 2
    room = (count - 1) ** 2 - count * deviate
    if room <= 0:
        return 0.0
    return two_sided(count * deviate * freedom / room, freedom)


def two_sided(square: float, freedom: int) -> float:
    """Return the chance that Student's t is as far from 0 as the root of ``square``, or farther.

    By the incomplete beta function (Abramowitz and Stegun 1964, 26.7.1).
    """
    # The normal distribution's tails are lighter, and far faster: most values end here.
    normal = math.erfc(math.sqrt(square / 2.0))
    if normal > 0.01:
        return normal
    return _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + square))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's method, as Thompson and Barnett (1986) have it.
    upper = 1.0
    lower = 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    fraction = lower
    for step in range(1, _STEPS):
        for part in _parts(a, b, x, step):
            lower = 1.0 / (1.0 + part * lower or _TINY)
            upper = 1.0 + part / upper or _TINY
            fraction *= upper * lower
        if abs(upper * lower - 1.0) < _PRECISE:
            break
    return front * fraction


def _parts(a: float, b: float, x: float, step: int) -> tuple[float, float]:
    twice = a + 2 * step
    even = step * (b - step) * x / ((twice - 1.0) * twice)
    odd = -(a + step) * (a + b + step) * x / (twice * (twice + 1.0))
    return even, odd
