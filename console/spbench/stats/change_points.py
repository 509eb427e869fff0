"""Steps in the history of a metric: the runs from which on it is higher or lower than before.

Between each two runs the ranks of those before and after are held against each other (Pettitt
1979), in all runs and in windows of them, in deviations, so that a step near either end counts as
much as one in the middle, and one slow run moves little. The largest is a step where no more than
`LEVEL` of random orders of the same runs have one as large; what lies before it and after it is
looked through in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random

from spbench.stats.summary import median

LEVEL = 0.01
"""The share of histories without a step in which one is found, for each part looked through."""
ORDERS = 299
"""Random orders that are tried."""
LEAST = 3
"""The fewest runs before a step and after it."""
ENOUGH = 10
"""About as many runs as it takes: of fewer, random orders show as much as any step too often."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step in a history of runs: at which run the median changes, and by how much.

    Attributes:
        at: The position of the first run after the step.
        before: The median of the runs since the previous step.
        after: The median of the runs up to the next step.
        chance: The share of random orders in which a step as large is found.
    """

    at: int
    before: float
    after: float
    chance: float

    @property
    def ratio(self) -> float:
        """The median after it over the median before."""
        return self.after / self.before


def steps(values: Sequence[float], tolerance: float, seed: int = 1) -> list[ChangePoint]:
    """Return the steps in values of runs (Pettitt 1979), in the order of the runs.

    Equal values and seeds give equal steps.

    Args:
        values: The values, all above 0, the oldest first.
        tolerance: The relative change of the median up to which it is not a step.
        seed: The seed of the random orders.
    """
    chance = Random(seed)
    found = _cuts(values, 0, len(values), chance)
    if not found:
        return []
    ends = [0, *(at for at, _ in found), len(values)]
    medians = [median(values[a:b]) for a, b in pairwise(ends)]
    points = [
        ChangePoint(at, medians[place], medians[place + 1], how)
        for place, (at, how) in enumerate(found)
    ]
    return [step for step in points if max(step.ratio, 1 / step.ratio) > 1 + tolerance]


def _cuts(values: Sequence[float], first: int, end: int, chance: Random) -> list[tuple[int, float]]:
    """Return the places of the steps between two runs, each with its chance."""
    ranks = _ranks(values[first:end])
    if len(ranks) < 2 * LEAST:
        return []
    at, size = _largest(ranks)
    how = _chance_of(size, ranks, chance)
    if how > LEVEL:
        return []
    before = _cuts(values, first, first + at, chance)
    after = _cuts(values, first + at, end, chance)
    return [*before, (first + at, how), *after]


def _chance_of(size: float, ranks: Sequence[float], chance: Random) -> float:
    """Return the share of random orders with a step as large; one above `LEVEL` is cut short."""
    as_large = 1
    for _ in range(ORDERS):
        as_large += _largest(chance.sample(ranks, len(ranks)))[1] >= size - 1e-9
        if as_large > LEVEL * (ORDERS + 1):
            break
    return as_large / (ORDERS + 1)


def _largest(ranks: Sequence[float]) -> tuple[int, float]:
    """Return where ranks before and after differ most, in any window, in deviations."""
    sums = [0.0, *accumulate(ranks)]
    spread = math.sqrt(len(ranks) * (len(ranks) + 1) / 12)
    found = (0, 0.0)
    for first, end in _windows(len(ranks)):
        for at in range(first + LEAST, end - LEAST + 1):
            before = at - first
            after = end - at
            distance = (sums[at] - sums[first]) / before - (sums[end] - sums[at]) / after
            size = abs(distance) / (spread * math.sqrt(1 / before + 1 / after))
            if size > found[1]:
                found = at, size
    return found


@lru_cache(maxsize=256)
def _windows(n: int) -> tuple[tuple[int, int], ...]:
    """Return the windows of n runs: all, halves, quarters and so on, each by half of its length.

    In all runs together a step up and one down again hide each other (Kovacs et al. 2023).
    """
    found = []
    length = n
    while length >= 2 * LEAST:
        by = max(1, length // 2)
        found += [(first, first + length) for first in range(0, n - length, by)]
        found.append((n - length, n))
        length //= 2
    return tuple(found)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the values' ranks from 1; equal values share the middle of theirs."""
    order = sorted(values)
    first = {value: at for at, value in reversed([*enumerate(order, 1)])}
    last = {value: at for at, value in enumerate(order, 1)}
    return [(first[value] + last[value]) / 2 for value in values]
