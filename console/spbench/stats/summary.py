"""Statistics of samples: percentiles, medians, intervals and summaries."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import chain
from typing import Protocol


class SortedValues(Protocol):
    """Samples in ascending order."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> float: ...


LARGEST = sys.float_info.max
_SQUARES = 1e150
"""Samples above this are scaled first, because their squares exceed the range of floats."""


def clamp_to_floats(value: float) -> float:
    """Return a value, or the largest float with its sign if it is infinite.

    Numbers of a broken kernel are reported, too, and the report's format has no infinities.
    """
    return min(max(float(value), -LARGEST), LARGEST)


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, percentiles, mean and standard deviation, in the unit of the samples.

    With several repeats, p50 is the median of their medians: see ``median_of_repeats``.
    """

    n: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float
    stdev: float


def percentile(ordered: SortedValues, fraction: float) -> float:
    """Return the percentile of samples that are sorted and not empty.

    Linear interpolation at position ``fraction * (n - 1)``, numpy's default
    (Hyndman and Fan 1996, definition 7).
    """
    position = fraction * (len(ordered) - 1)
    low_index = math.floor(position)
    high_index = min(low_index + 1, len(ordered) - 1)
    fraction_between = position - low_index
    step = ordered[high_index] - ordered[low_index]
    if math.isinf(step):  # the difference of two huge values with opposite signs overflows
        return ordered[low_index] * (1 - fraction_between) + ordered[high_index] * fraction_between
    return ordered[low_index] + step * fraction_between


def median(values: Iterable[float]) -> float:
    """Return the median of values that are not empty."""
    return percentile(sorted(values), 0.5)


def median_of_repeats(repeats: Iterable[Iterable[float]]) -> float:
    """Return the median of the repeats' medians; there must be a value.

    A repeat counts once, because its iterations depend on each other. Metrics with one value per
    repeat are aggregated in the same way.
    """
    return median(median(values) for values in map(list, repeats) if values)


def median_interval(values: Iterable[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median; None with fewer than six values.

    Its ends are order statistics, and it is exact for any distribution (Thompson 1936): the number
    of draws below the median has a binomial distribution.
    """
    ordered = sorted(values)
    n = len(ordered)
    orders_below = 0
    num_outside = 0
    while (orders_below := orders_below + math.comb(n, num_outside)) * 40 <= 2**n:
        num_outside += 1
    return (ordered[num_outside - 1], ordered[n - num_outside]) if num_outside else None


def lower_median(values: Iterable[float]) -> float:
    """Return the lower median, which is always one of the values.

    Slow ranks are compared with it. With two ranks, the slow one is compared with the other.
    """
    return statistics.median_low(values)


def summarize(values: Iterable[float]) -> Summary | None:
    """Return the summary of the values; None if there are none.

    ``stdev`` is that of a sample (n - 1), and 0 for one value.
    """
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        return None
    scale = max(-ordered[0], ordered[-1])
    if scale > _SQUARES:
        return _summarize_scaled(ordered, float(scale))
    mean = math.fsum(ordered) / n
    variance = math.fsum((value - mean) ** 2 for value in ordered) / (n - 1) if n > 1 else 0.0
    return Summary(
        n=n,
        min=ordered[0],
        p50=percentile(ordered, 0.50),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
        mean=mean,
        stdev=math.sqrt(variance),
    )


def summarize_repeats(repeats: Sequence[Sequence[float]]) -> Summary | None:
    """Return the summary of all values; p50 is the median of the repeats' medians."""
    summary = summarize(chain.from_iterable(repeats))
    return summary and replace(summary, p50=median_of_repeats(repeats))


def _summarize_scaled(ordered: list[float], scale: float) -> Summary | None:
    summary = summarize(value / scale for value in ordered)
    return summary and Summary(
        summary.n, *(clamp_to_floats(statistic * scale) for statistic in astuple(summary)[1:])
    )
