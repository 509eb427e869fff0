"""The difference between two sets of launches: its interval and its significance.

The unit is a launch, and its value is the median of its iterations: iterations of a launch depend
on each other, and repeats in one launch share its state. The interval of the ratio is that of
Hodges and Lehmann (1963). The exact test of Mann and Whitney (1947), of which it is the inverse,
shows whether chance explains the difference. Neither assumes a distribution, and one slow launch of
several has little influence on both. The ratio itself is that of the two medians, because readers
get the same number if they divide the values. If it is outside the interval, the interval is
widened to contain it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spbench.stats.summary import median

SIGNIFICANCE_LEVEL = 0.05
"""The share of equal pairs that may be called different, and of intervals that miss the ratio."""
MIN_PAST_RUNS = 5
"""The fewest earlier runs that show how much runs differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The ratio of b to a, over launches.

    Attributes:
        ratio: The value of b over that of a.
        low: The lower end of the 95 % interval, at most the ratio; None with too few launches.
        high: The upper end, at least the ratio.
        p_value: The probability of a difference this large, or larger, between equals.
        past_runs: The number of earlier runs that widened the interval.
    """

    ratio: float
    low: float | None
    high: float | None
    p_value: float
    past_runs: int = 0


def estimate_difference(
    a: Sequence[float],
    b: Sequence[float],
    past_launches: Sequence[Sequence[float]] = (),
) -> Difference:
    """Return the difference of b from a.

    Args:
        a: The medians of the launches of one side, all above 0.
        b: Those of the other side.
        past_launches: The launches of earlier runs of the same case on the same machines, run by
            run. The interval is at least as wide as the difference between those runs.
    """
    ratio = median(b) / median(a)
    p_value = rank_test(a, b)
    num_outside = count_outside_interval(len(a), len(b), SIGNIFICANCE_LEVEL)
    if num_outside is None:
        return Difference(ratio, None, None, p_value)

    log_times_a = [math.log(x) for x in a]
    log_times_b = [math.log(y) for y in b]
    log_ratios = sorted([y - x for x in log_times_a for y in log_times_b])
    log_ratio = math.log(ratio)
    num_past, half_width = _past_half_width(tuple(map(tuple, past_launches)))
    low_log = min(log_ratios[num_outside], log_ratio - half_width)
    high_log = max(log_ratios[-1 - num_outside], log_ratio + half_width)
    if num_past:
        p_value = max(p_value, math.erfc(abs(log_ratio) / half_width * 1.96 / math.sqrt(2)))
    return Difference(ratio, math.exp(low_log), math.exp(high_log), p_value, num_past)


def combine_p_values(first: float, second: float) -> float:
    """Return the p-value of the smaller of the p-values of two tests (Simes 1986).

    It is valid for positively dependent tests (Sarkar 1998), such as two of the same launches.
    """
    return min(1.0, 2.0 * min(first, second), max(first, second))


@lru_cache(maxsize=4096)
def _past_half_width(past_launches: tuple[tuple[float, ...], ...]) -> tuple[int, float]:
    """Return the number of usable earlier runs and the half width that they require."""
    run_medians = [median(run) for run in past_launches if run and min(run) > 0]
    if len(run_medians) < MIN_PAST_RUNS:
        return 0, 0.0
    return len(run_medians), _compute_half_width(run_medians)


def _compute_half_width(run_medians: Sequence[float]) -> float:
    """Return the logarithmic half width of the interval of the ratio of two runs.

    The spread is the median distance from the median, scaled to a standard deviation, so that one
    slow run in thirty does not count. The last factor approximates Student's t for few runs.
    """
    log_medians = [math.log(run) for run in run_medians]
    middle = median(log_medians)
    deviation = 1.4826 * median(abs(log - middle) for log in log_medians)
    return max(1.96 * math.sqrt(2) * deviation * (1 + 1.7 / (len(run_medians) - 1)), 1e-12)


def rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the exact two-sided p-value of Mann and Whitney's U.

    A tie counts as half. If U is not an integer because of ties, the larger p-value is returned.
    """
    ordered_b = sorted(b)
    twice_u = sum(2 * len(b) - bisect_left(ordered_b, x) - bisect_right(ordered_b, x) for x in a)
    pairs_with_larger_b = twice_u / 2
    u = math.ceil(min(pairs_with_larger_b, len(a) * len(b) - pairs_with_larger_b))
    num_orders = sum(count_orders(len(a), len(b))[: u + 1])
    return min(1.0, 2.0 * num_orders / math.comb(len(a) + len(b), len(a)))


def compute_min_p_value(a: int, b: int) -> float:
    """Return the smallest p-value that the test can give for a and b launches."""
    return min(1.0, 2.0 / math.comb(a + b, a))


def compute_min_launches(tests: int) -> int:
    """Return the launches per side that can show one difference among this many tests."""
    return next(n for n in range(2, 100) if compute_min_p_value(n, n) <= SIGNIFICANCE_LEVEL / tests)


def count_outside_interval(a: int, b: int, level: float) -> int | None:
    """Return the number of ordered ratios outside each end of the interval.

    None if even all ratios of a and b launches do not make an interval of that level.
    """
    num_orders = math.comb(a + b, a)
    orders_so_far = 0
    num_outside = None
    for u, count in enumerate(count_orders(a, b)):
        orders_so_far += count
        if 2.0 * orders_so_far / num_orders > level:
            break
        num_outside = u
    return num_outside


@lru_cache(maxsize=256)
def count_orders(a: int, b: int) -> tuple[int, ...]:
    """Return the number of orders of a + b launches by their U, from 0 to a * b.

    The recursion is that of Mann and Whitney: the largest launch is one of a, and above all of b,
    or one of b.
    """
    table: list[list[tuple[int, ...]]] = [[(1,)] * (b + 1)]
    for num_a in range(1, a + 1):
        row: list[tuple[int, ...]] = [(1,)]
        for num_b in range(1, b + 1):
            counts_if_a_largest = table[num_a - 1][num_b]
            counts_if_b_largest = row[num_b - 1]
            num_values_of_u = num_a * num_b + 1
            row.append(
                tuple(
                    (
                        counts_if_a_largest[u - num_b]
                        if 0 <= u - num_b < len(counts_if_a_largest)
                        else 0
                    )
                    + (counts_if_b_largest[u] if u < len(counts_if_b_largest) else 0)
                    for u in range(num_values_of_u)
                )
            )
        table.append(row)
    return table[a][b]


def find_discoveries(p_values: Sequence[float], level: float = SIGNIFICANCE_LEVEL) -> list[bool]:
    """Return which of many differences chance does not explain.

    On average, at most a share of ``level`` of these is wrong (Benjamini and Hochberg 1995).
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    num_discoveries = max(
        (
            position
            for position, index in enumerate(order, 1)
            if p_values[index] <= level * position / len(order)
        ),
        default=0,
    )
    is_different = [False] * len(p_values)
    for index in order[:num_discoveries]:
        is_different[index] = True
    return is_different
