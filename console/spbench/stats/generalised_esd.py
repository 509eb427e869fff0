"""The generalised extreme Studentised deviate test, which finds outliers.

Rosner, Percentage Points for a Generalized ESD Many-Outlier Procedure, Technometrics 25, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from spbench.stats.summary import median

MIN_ESD_VALUES = 10
"""The fewest values for the test; with fewer, it would hardly ever find an outlier."""
VALUES_PER_OUTLIER = 4
"""At most one of this many values can be an outlier; more of them would be a group."""
_MAX_STEPS = 10_000
"""The largest number of steps of the continued fraction of the incomplete beta function."""
_TINY = 1e-300
"""Replaces a denominator of 0 in the continued fraction."""
_PRECISION = 1e-12
"""The relative change at which the continued fraction ends."""

Key = TypeVar("Key", bound=Hashable)


def find_large_outliers(values: Mapping[Key, float], significance_level: float) -> dict[Key, float]:
    """Return the values that are too large (Rosner 1983), less the median.

    Values that are too small are removed as well, so that they hide no others, but not returned.
    With fewer than `MIN_ESD_VALUES` there is no outlier.

    Args:
        values: Values with a normal distribution except for outliers, such as logarithms of times.
        significance_level: The probability of a false alarm if no value is an outlier.
    """
    if len(values) < MIN_ESD_VALUES:
        return {}
    middle = median(values.values())
    ordered_distances = sorted(value - middle for value in values.values())
    num_kept = _count_not_too_large(ordered_distances, significance_level)
    if num_kept == len(ordered_distances):
        return {}
    threshold = ordered_distances[num_kept]
    distance_by_key = {key: value - middle for key, value in values.items()}
    return {key: distance for key, distance in distance_by_key.items() if distance >= threshold}


def _count_not_too_large(ordered: list[float], significance_level: float) -> int:
    """Return the number of values, in ascending order, that are not too large.

    The value furthest from the mean is removed repeatedly. The outliers are the values removed up
    to the last one that was too far from the mean of those left at that time.
    """
    first = 0
    end = len(ordered)
    num_not_too_large = len(ordered)
    value_sum = math.fsum(ordered)
    square_sum = math.fsum(value * value for value in ordered)
    for _ in range(max(1, len(ordered) // VALUES_PER_OUTLIER)):
        count = end - first
        mean = value_sum / count
        variance = (square_sum - value_sum * mean) / (count - 1)
        if variance <= _PRECISION * square_sum / count:
            break
        if ordered[end - 1] - mean >= mean - ordered[first]:
            end -= 1
            value = ordered[end]
        else:
            value = ordered[first]
            first += 1
        value_sum -= value
        square_sum -= value * value
        if _bound_p_value((value - mean) ** 2 / variance, count) <= significance_level / count:
            num_not_too_large = end
    return num_not_too_large


def _bound_p_value(squared_deviate: float, count: int) -> float:
    """Return the probability that one of ``count`` values has such a squared deviate.

    A deviate is the distance from the mean in standard deviations, both of all the values.
    """
    degrees_of_freedom = count - 2
    distance_to_largest = (count - 1) ** 2 - count * squared_deviate
    if distance_to_largest <= 0:
        return 0.0
    return compute_student_t_p_value(
        count * squared_deviate * degrees_of_freedom / distance_to_largest, degrees_of_freedom
    )


def compute_student_t_p_value(square: float, degrees_of_freedom: int) -> float:
    """Return the probability that Student's t squared is at least ``square``.

    By the incomplete beta function (Abramowitz and Stegun 1964, 26.7.1).
    """
    # The tails of the normal distribution are lighter and far faster to compute. They suffice for
    # most values.
    normal = math.erfc(math.sqrt(square / 2.0))
    if normal > 0.01:
        return normal
    return _incomplete_beta(
        degrees_of_freedom / 2.0, 0.5, degrees_of_freedom / (degrees_of_freedom + square)
    )


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function.

    It is computed by its continued fraction (DLMF 8.17.22).
    """
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's method (Thompson and Barnett 1986).
    upper = 1.0
    lower = 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    fraction = lower
    for step in range(1, _MAX_STEPS):
        for coefficient in _coefficients(a, b, x, step):
            lower = 1.0 / (1.0 + coefficient * lower or _TINY)
            upper = 1.0 + coefficient / upper or _TINY
            fraction *= upper * lower
        if abs(upper * lower - 1.0) < _PRECISION:
            break
    return front * fraction


def _coefficients(a: float, b: float, x: float, step: int) -> tuple[float, float]:
    twice = a + 2 * step
    even = step * (b - step) * x / ((twice - 1.0) * twice)
    odd = -(a + step) * (a + b + step) * x / (twice * (twice + 1.0))
    return even, odd
