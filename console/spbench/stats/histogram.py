"""Histograms of samples: bins of equal width or ratio up to a fence (Tukey 1977)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from spbench.stats.sorted_samples import SortedSamples

DRAWN_SHARE = 0.999
"""The share of many samples that is drawn."""
MANY_SAMPLES = 1000
"""With this many samples, only `DRAWN_SHARE` of them is drawn."""
FENCE = 3.0
"""Samples beyond the upper quartile by this many interquartile ranges are far out (Tukey 1977)."""
MIN_SPREAD = 0.01
"""The least interquartile range as a share of the quartile, for samples that are nearly equal."""
MIN_SAVED_SHARE = 0.25
"""The smallest share of the axis beyond the fence that is left out instead of drawn."""
MAX_FAR_OUT_SHARE = 0.1
"""The largest share of samples far out that is counted instead of drawn; one sample always is."""


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram with bins of equal width, or of equal ratio on a logarithmic axis.

    ``counts[i]`` samples are between ``edges[i]`` and ``edges[i + 1]``. ``above_range`` samples are
    larger than the last edge.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    above_range: int


def make_bins(
    samples: SortedSamples, count: int, *, full_range: bool = False, log: bool = False
) -> Bins:
    """Return the samples in ``count`` bins, from the smallest to `find_axis_end`.

    Args:
        samples: At least one sample.
        count: The number of bins.
        full_range: Whether the bins extend to the largest sample.
        log: Whether the bins have equal ratios; all samples must be positive.
    """
    low = samples.smallest
    high = samples.largest if full_range else find_axis_end(samples)
    if high <= low:  # all samples are equal: they are in the first bin
        high = low + (abs(low) or 1.0) / 100
    return count_in_bins(samples, find_edges(low, high, count, log=log))


def find_edges(low: float, high: float, count: int, *, log: bool = False) -> tuple[float, ...]:
    """Return the ends of ``count`` bins from ``low`` to ``high``, which are exact.

    The bins have equal widths, or equal ratios if ``log``.
    """
    if log:
        inner_edges = [low * (high / low) ** (index / count) for index in range(count)]
    else:
        inner_edges = [low + index * ((high - low) / count) for index in range(count)]
    return (*inner_edges, high)


def count_in_bins(samples: SortedSamples, edges: Sequence[float]) -> Bins:
    """Return a histogram of samples, none of them below the first edge.

    A sample on an edge is in the bin above it; one on the last edge is in the last bin if no
    sample is larger.
    """
    n = len(samples)
    in_range = n if edges[-1] >= samples.largest else samples.count_below(edges[-1])
    cumulative = (min(in_range, samples.count_below(edge)) for edge in edges[1:-1])
    counts = tuple(upper - lower for lower, upper in pairwise((0, *cumulative, in_range)))
    return Bins(tuple(edges), counts, n - in_range)


def find_axis_end(samples: SortedSamples) -> float:
    """Return the end of the axis; a few slow samples beyond it are not drawn."""
    n = len(samples)
    axis_end = samples.largest
    if n >= MANY_SAMPLES:
        axis_end = min(samples.percentile(DRAWN_SHARE), axis_end)
    upper_quartile = samples.percentile(0.75)
    quartile_range = max(
        upper_quartile - samples.percentile(0.25), MIN_SPREAD * abs(upper_quartile)
    )
    fence = upper_quartile + FENCE * quartile_range
    if fence - samples.smallest > (1 - MIN_SAVED_SHARE) * (axis_end - samples.smallest):
        return axis_end
    num_far_out = n - samples.count_below(fence)
    return min(fence, axis_end) if num_far_out <= max(1.0, MAX_FAR_OUT_SHARE * n) else axis_end
