"""The histogram of samples: bins of equal width, drawn up to a fence (Tukey 1977)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from spbench.stats.sorted_samples import SortedSamples

TAIL = 0.999
TAIL_FROM = 1000
"""The part of the samples that is drawn, and the number of samples from which on it is not all."""
FENCE = 3.0
LEAST_SPREAD = 0.01
"""Samples beyond the upper quartile by this many interquartile ranges are far out (Tukey 1977).

The range counts as at least this part of the quartile, so that equal samples have one too.
"""
MOST_FAR_OUT = 0.1
"""The part of the samples up to which those far out are counted and not drawn; one always is."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width: ``counts[i]`` samples lie between ``edges[i]`` and ``edges[i + 1]``.

    ``beyond`` samples are larger than the last edge.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    beyond: int


def make_bins(samples: SortedSamples, count: int, *, full_range: bool = False) -> Bins:
    """Return the samples in ``count`` bins, from the smallest to `drawn_end`.

    Up to the largest if ``whole`` is set.
    """
    n = len(samples)
    low = samples.smallest
    greatest = samples.largest
    high = greatest if full_range else find_axis_end(samples)
    drawn = n if high == greatest else samples.count_below(high)
    if high <= low:  # all alike: they stand in the first bin
        high = low + (abs(low) or 1.0) / 100
        drawn = n
    step = (high - low) / count
    edges = (*(low + index * step for index in range(count)), high)
    within = (min(drawn, samples.count_below(edge)) for edge in edges[1:-1])
    counts = tuple(upper - lower for lower, upper in pairwise((0, *within, drawn)))
    return Bins(edges, counts, n - drawn)


def find_axis_end(samples: SortedSamples) -> float:
    """Return where a drawing of samples ends, so that a few slow ones leave the others room."""
    n = len(samples)
    end = samples.largest
    if n >= TAIL_FROM:
        end = min(samples.percentile(TAIL), end)
    quartile = samples.percentile(0.75)
    spread = max(quartile - samples.percentile(0.25), LEAST_SPREAD * abs(quartile))
    fence = quartile + FENCE * spread
    far_out = n - samples.count_below(fence)
    return min(fence, end) if far_out <= max(1.0, MOST_FAR_OUT * n) else end
