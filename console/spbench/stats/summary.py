"""Statistics of samples: percentiles by linear interpolation between the closest ranks."""

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
"""Samples beyond this are scaled first: their squares are no floats."""


def clamp_to_floats(value: float) -> float:
    """Return a value, or the largest float of its sign where it is infinite.

    A broken kernel's figures are reported, and a report has no infinities.
    """
    return min(max(float(value), -LARGEST), LARGEST)


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, percentiles, mean and standard deviation of samples, in the samples' own unit.

    Of several repeats, p50 is the median of their medians: see ``median_of_repeats``.
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
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    share = position - low
    step = ordered[high] - ordered[low]
    if math.isinf(step):  # between the largest floats of both signs
        return ordered[low] * (1 - share) + ordered[high] * share
    return ordered[low] + step * share


def median(values: Iterable[float]) -> float:
    """Return the median of values that are not empty."""
    return percentile(sorted(values), 0.5)


def median_of_repeats(repeats: Iterable[Iterable[float]]) -> float:
    """Return the median of the repeats' medians; there must be a value.

    A repeat counts once: its iterations depend on each other, and metrics of one value a repeat
    are aggregated in the same way.
    """
    return median(median(values) for values in map(list, repeats) if values)


def median_interval(values: Iterable[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median of what values are drawn from; None below six.

    Between order statistics, exact whatever the distribution is (Thompson 1936): of n draws at most
    k - 1 lie below the median by the binomial distribution's chance.
    """
    ordered = sorted(values)
    n = len(ordered)
    below = 0
    outside = 0
    while (below := below + math.comb(n, outside)) * 40 <= 2**n:
        outside += 1
    return (ordered[outside - 1], ordered[n - outside]) if outside else None


def lower_median(values: Iterable[float]) -> float:
    """Return the lower median: the value of one of the ranks, even if there are only two.

    What is slow is compared with it, so that of two ranks the slow one stands out.
    """
    return statistics.median_low(values)


def summarize(values: Iterable[float]) -> Summary | None:
    """Return the summary of the values; None where there are none.

    ``stdev`` is the sample's (n - 1), 0 for one value.
    """
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        return None
    scale = max(-ordered[0], ordered[-1])
    if scale > _SQUARES:
        return _scaled(ordered, float(scale))
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
    """Return the summary of all values, with the median of the repeats' medians as p50."""
    summary = summarize(chain.from_iterable(repeats))
    return summary and replace(summary, p50=median_of_repeats(repeats))


def _scaled(ordered: list[float], scale: float) -> Summary | None:
    unit = summarize(value / scale for value in ordered)
    return unit and Summary(unit.n, *(clamp_to_floats(x * scale) for x in astuple(unit)[1:]))
