"""The difference between two sets of launches: its interval, and whether chance explains it.

A launch is one sample, the median of its iterations: iterations of a launch depend on each other,
and repeats in one launch share its state. The interval of the ratio is that of Hodges and Lehmann
(1963), and whether chance explains the difference is told by the exact test of Mann and Whitney
(1947), of which it is the inverse. Neither assumes a distribution, and one slow launch of several
moves both little. The ratio itself is that of the two medians, since that is what a reader gets who
divides the values; where it is outside of the interval, the interval is widened to hold it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spbench.stats.summary import median

LEVEL = 0.05
"""The share of equal pairs that may be called different, and of intervals that miss the ratio."""
LEAST_PAST = 5
"""Fewer earlier runs than this tell nothing of how much runs differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The ratio of b to a, over launches.

    Attributes:
        ratio: The value of b over that of a.
        low: The lower end of the 95 % interval, at most the ratio; None with too few launches.
        high: The upper end, at least the ratio.
        chance: The probability of a difference this large, or larger, between equals.
        past: The number of earlier runs that widened the interval.
    """

    ratio: float
    low: float | None
    high: float | None
    chance: float
    past: int = 0


def difference(
    a: Sequence[float],
    b: Sequence[float],
    past: Sequence[Sequence[float]] = (),
) -> Difference:
    """Return how b differs from a.

    Args:
        a: The medians of the launches of one side, all above 0.
        b: Those of the other side.
        past: The launches of earlier runs of the same case on the same machines, run by run. How
            much those runs differ from each other is the least that the interval allows for.
    """
    ratio = median(b) / median(a)
    chance = rank_test(a, b)
    skipped = skipped_at(len(a), len(b), LEVEL)
    if skipped is None:
        return Difference(ratio, None, None, chance)
    logs_a = [math.log(x) for x in a]
    logs_b = [math.log(y) for y in b]
    logs = sorted([y - x for x in logs_a for y in logs_b])
    centre = math.log(ratio)
    widened, half = _widened(tuple(map(tuple, past)))
    low = min(logs[skipped], centre - half)
    high = max(logs[-1 - skipped], centre + half)
    if widened:
        chance = max(chance, math.erfc(abs(centre) / half * 1.96 / math.sqrt(2)))
    return Difference(ratio, math.exp(low), math.exp(high), chance, widened)


def chance_of_either(first: float, second: float) -> float:
    """Return the chance of the smaller of two tests' chances, by Simes (1986).

    It holds for tests that rise and fall together (Sarkar 1998), as two of the same launches do.
    """
    return min(1.0, 2.0 * min(first, second), max(first, second))


@lru_cache(maxsize=4096)
def _widened(past: tuple[tuple[float, ...], ...]) -> tuple[int, float]:
    """Return how many earlier runs widen an interval, and the half width that they ask for."""
    runs = [median(run) for run in past if run and min(run) > 0]
    return (len(runs), _between_runs(runs)) if len(runs) >= LEAST_PAST else (0, 0.0)


def _between_runs(runs: Sequence[float]) -> float:
    """Return the half width of the interval of the ratio of two runs, as logarithm.

    The spread is the median distance from the median, made a standard deviation, so that one slow
    run in thirty does not count; the last factor is Student's, nearly, for so few runs.
    """
    logs = [math.log(run) for run in runs]
    middle = median(logs)
    deviation = 1.4826 * median(abs(each - middle) for each in logs)
    return max(1.96 * math.sqrt(2) * deviation * (1 + 1.7 / (len(runs) - 1)), 1e-12)


def rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided chance of Mann and Whitney's U, exact; a tie counts as half.

    Where halves remain the larger chance is returned.
    """
    others = sorted(b)
    above = sum(2 * len(b) - bisect_left(others, x) - bisect_right(others, x) for x in a) / 2
    most = len(a) * len(b)
    least = math.ceil(min(above, most - above))
    return min(
        1.0, 2.0 * sum(counts(len(a), len(b))[: least + 1]) / math.comb(len(a) + len(b), len(a))
    )


def floor_of(a: int, b: int) -> float:
    """Return the least chance that the test can give for so many launches a side."""
    return min(1.0, 2.0 / math.comb(a + b, a))


def least_launches(together: int) -> int:
    """Return how many launches a side can show one difference among so many cases."""
    return next(n for n in range(2, 100) if floor_of(n, n) <= LEVEL / together)


def skipped_at(a: int, b: int, level: float) -> int | None:
    """Return how many of the ordered ratios lie outside each end of the interval, or None.

    None where even all of them do not make an interval of that level.
    """
    total = math.comb(a + b, a)
    below = 0
    skipped = None
    for u, count in enumerate(counts(a, b)):
        below += count
        if 2.0 * below / total > level:
            break
        skipped = u
    return skipped


@lru_cache(maxsize=256)
def counts(a: int, b: int) -> tuple[int, ...]:
    """Return the number of orders of a + b launches by their U, from 0 to a * b.

    By the recursion of Mann and Whitney: the largest is one of a's, and above all of b's, or b's.
    """
    found: list[list[tuple[int, ...]]] = [[(1,)] * (b + 1)]
    for size in range(1, a + 1):
        row: list[tuple[int, ...]] = [(1,)]
        for other in range(1, b + 1):
            with_a = found[size - 1][other]
            with_b = row[other - 1]
            length = size * other + 1
            row.append(
                tuple(
                    (with_a[u - other] if 0 <= u - other < len(with_a) else 0)
                    + (with_b[u] if u < len(with_b) else 0)
                    for u in range(length)
                )
            )
        found.append(row)
    return found[a][b]


def discoveries(chances: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Say which of many differences are none of chance, by Benjamini and Hochberg (1995).

    Of those that are found, at most ``level`` are wrong, on average.
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    found = [False] * len(chances)
    last = max(
        (at for at, one in enumerate(order, 1) if chances[one] <= level * at / len(order)),
        default=0,
    )
    for one in order[:last]:
        found[one] = True
    return found
