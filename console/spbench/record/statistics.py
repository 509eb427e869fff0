"""Statistics of samples: percentiles by linear interpolation between the closest ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Sorted(Protocol):
    """Samples in ascending order."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, percentiles, mean and standard deviation of samples, in the samples' own unit."""

    n: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float
    stdev: float


def percentile(ordered: Sorted, fraction: float) -> float:
    """Return the percentile of samples that are sorted and not empty.

    Linear interpolation at position ``fraction * (n - 1)``, numpy's default
    (Hyndman and Fan 1996, definition 7).
    """
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Iterable[float]) -> float:
    """Return the median of values that are not empty."""
    return percentile(sorted(values), 0.5)


def typical(values: Iterable[float]) -> float:
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
