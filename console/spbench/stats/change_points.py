"""Change points in the history of a metric: the runs at which its median changes.

The test compares the ranks of the runs before and after each position (Pettitt 1979). It does so in
all runs and in windows of them. Differences are in standard deviations, so that a step near either
end counts as much as one in the middle, and one slow run has little influence. The largest
difference is a step if at most `SIGNIFICANCE_LEVEL` of random orders of the same runs have one as
large. The runs before it and after it are then searched in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random

from spbench.stats.summary import median

SIGNIFICANCE_LEVEL = 0.01
"""The share of histories without a step in which one is found, for each searched part."""
RANDOM_ORDERS = 299
"""The number of random orders that are tried."""
MIN_RUNS = 3
"""The fewest runs before a step and after it."""
ENOUGH_RUNS = 10
"""About the number of runs that it takes to find a step.

With fewer, random orders too often show a difference as large as that of any step.
"""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step in a history of runs, and the medians before and after it.

    Attributes:
        index: The position of the first run after the step.
        before: The median of the runs since the previous step.
        after: The median of the runs up to the next step.
        p_value: The share of random orders in which a step as large is found.
    """

    index: int
    before: float
    after: float
    p_value: float

    @property
    def ratio(self) -> float:
        """The median after it over the median before."""
        return self.after / self.before


def find_steps(values: Sequence[float], tolerance: float, seed: int = 1) -> list[ChangePoint]:
    """Return the steps in values of runs (Pettitt 1979), in the order of the runs.

    Equal values and seeds give equal steps.

    Args:
        values: The values, all above 0, the oldest first.
        tolerance: The relative change of the median up to which it is not a step.
        seed: The seed of the random orders.
    """
    cuts = _find_cuts(values, 0, len(values), Random(seed))
    if not cuts:
        return []
    ends = [0, *(index for index, _ in cuts), len(values)]
    medians = [median(values[start:end]) for start, end in pairwise(ends)]
    steps = [
        ChangePoint(index, before, after, p_value)
        for (index, p_value), (before, after) in zip(cuts, pairwise(medians), strict=True)
    ]
    return [step for step in steps if max(step.ratio, 1 / step.ratio) > 1 + tolerance]


def _find_cuts(
    values: Sequence[float], first: int, end: int, rng: Random
) -> list[tuple[int, float]]:
    """Return the positions and p-values of the steps from run `first` to before `end`."""
    value_ranks = _compute_ranks(values[first:end])
    if len(value_ranks) < 2 * MIN_RUNS:
        return []
    index, size = _find_largest_step(value_ranks)
    p_value = _estimate_p_value(size, value_ranks, rng)
    if p_value > SIGNIFICANCE_LEVEL:
        return []
    cuts_before = _find_cuts(values, first, first + index, rng)
    cuts_after = _find_cuts(values, first + index, end, rng)
    return [*cuts_before, (first + index, p_value), *cuts_after]


def _estimate_p_value(size: float, value_ranks: Sequence[float], rng: Random) -> float:
    """Return the share of random orders with a step as large.

    The search ends early once the share exceeds `SIGNIFICANCE_LEVEL`.
    """
    num_as_large = 1
    for _ in range(RANDOM_ORDERS):
        _, random_size = _find_largest_step(rng.sample(value_ranks, len(value_ranks)))
        num_as_large += random_size >= size - 1e-9
        if num_as_large > SIGNIFICANCE_LEVEL * (RANDOM_ORDERS + 1):
            break
    return num_as_large / (RANDOM_ORDERS + 1)


def _find_largest_step(value_ranks: Sequence[float]) -> tuple[int, float]:
    """Return the position of the largest step in any window, and its size.

    The size is the difference of the mean ranks before and after, in standard deviations.
    """
    rank_sums = [0.0, *accumulate(value_ranks)]
    rank_stdev = math.sqrt(len(value_ranks) * (len(value_ranks) + 1) / 12)
    largest_step = (0, 0.0)
    for first, end in _list_windows(len(value_ranks)):
        for index in range(first + MIN_RUNS, end - MIN_RUNS + 1):
            num_before = index - first
            num_after = end - index
            mean_before = (rank_sums[index] - rank_sums[first]) / num_before
            mean_after = (rank_sums[end] - rank_sums[index]) / num_after
            size_in_stdevs = abs(mean_before - mean_after) / (
                rank_stdev * math.sqrt(1 / num_before + 1 / num_after)
            )
            if size_in_stdevs > largest_step[1]:
                largest_step = index, size_in_stdevs
    return largest_step


@lru_cache(maxsize=256)
def _list_windows(n: int) -> tuple[tuple[int, int], ...]:
    """Return the windows of n runs: all, halves, quarters and so on.

    Windows of one length overlap by half of it.

    In all runs together, a step up and a later step down hide each other (Kovacs et al. 2023).
    """
    windows = []
    length = n
    while length >= 2 * MIN_RUNS:
        stride = max(1, length // 2)
        windows += [(first, first + length) for first in range(0, n - length, stride)]
        windows.append((n - length, n))
        length //= 2
    return tuple(windows)


def _compute_ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of the values from 1; equal values get their mean rank."""
    ordered = sorted(values)
    first_rank_by_value = {value: rank for rank, value in reversed([*enumerate(ordered, 1)])}
    last_rank_by_value = {value: rank for rank, value in enumerate(ordered, 1)}
    return [(first_rank_by_value[value] + last_rank_by_value[value]) / 2 for value in values]
