"""Tests of the statistics of comparisons against scipy and simulated launches."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, mannwhitneyu

from spbench.stats.difference import (
    combine_p_values,
    compute_min_launches,
    compute_min_p_value,
    count_orders,
    estimate_difference,
    find_discoveries,
    rank_test,
)

LAUNCHES = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9, unique=True)


@given(LAUNCHES, LAUNCHES)
def test_rank_test_matches_scipy(a: list[float], b: list[float]) -> None:
    if not set(a) & set(b):
        expected = mannwhitneyu(a, b, method="exact").pvalue
        assert rank_test(a, b) == pytest.approx(expected)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_combined_chance_matches_simes(first: float, second: float) -> None:
    """The smaller of two p-values, corrected for false discoveries, is that of Simes."""
    expected = min(false_discovery_control([first, second]))
    assert combine_p_values(first, second) == pytest.approx(expected)


def test_equal_values_have_chance_one() -> None:
    assert rank_test([1.0] * 5, [1.0] * 5) == 1.0
    # A tie counts as half; if halves remain, the larger p-value is returned.
    assert rank_test([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) == pytest.approx(2 * 2 / 20)


def test_counts_all_orders() -> None:
    assert count_orders(2, 2) == (1, 1, 2, 1, 1)
    assert sum(count_orders(6, 9)) == 5005


def test_smallest_chance_of_five_launches_is_1_in_126() -> None:
    assert compute_min_p_value(5, 5) == pytest.approx(1 / 126)
    assert [compute_min_launches(n) for n in (1, 6, 7, 100)] == [4, 5, 6, 8]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_discoveries_match_benjamini_hochberg(p_values: list[float]) -> None:
    expected = [bool(p <= 0.05) for p in false_discovery_control(p_values)]
    at_limit = any(abs(p - 0.05) < 1e-9 for p in false_discovery_control(p_values))
    assert at_limit or find_discoveries(p_values) == expected


@pytest.mark.parametrize("launches", [4, 5, 8])
def test_interval_covers_the_ratio_in_95_percent(launches: int) -> None:
    rng = random.Random(launches)
    covered = 0
    for _ in range(2000):
        a, b = ([rng.lognormvariate(0.0, 0.1) for _ in range(launches)] for _ in "ab")
        difference = estimate_difference(a, b)
        assert difference.low is not None
        assert difference.high is not None
        covered += difference.low <= 1.0 <= difference.high
    assert covered >= 0.95 * 2000 - 30


@given(LAUNCHES, LAUNCHES)
def test_ratio_of_medians_is_within_the_interval(a: list[float], b: list[float]) -> None:
    difference = estimate_difference(a, b)
    assert difference.ratio == pytest.approx(median(b) / median(a))
    if difference.low is not None and difference.high is not None:
        assert difference.low <= difference.ratio * (1 + 1e-12)
        assert difference.ratio <= difference.high * (1 + 1e-12)


def test_interval_is_widened_to_include_the_ratio() -> None:
    # Pairwise differences are around 1, and the medians are in different halves of the launches.
    a = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    b = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    difference = estimate_difference(a, b)
    assert (difference.ratio, difference.high) == (2.0, 2.0)


def test_spread_between_runs_widens_the_interval() -> None:
    earlier_runs = [[1.0], [1.1], [0.9], [1.05], [0.95], [1.0]]
    b = [1.2 + n / 1000 for n in range(5)]
    plain, widened = (
        estimate_difference([1.0 + n / 1000 for n in range(5)], b, earlier)
        for earlier in ((), earlier_runs)
    )
    assert plain.low is not None
    assert plain.low > 1.0
    assert widened.past_runs == 6
    assert widened.low is not None
    assert widened.low < 1.0 < 1.2 < (widened.high or 0.0)
    assert estimate_difference(b, b, earlier_runs[:4]).past_runs == 0


def test_too_few_launches_have_no_interval() -> None:
    earlier_runs = [[1.0]] * 10
    assert estimate_difference([1.0], [1.2], earlier_runs).low is None
    assert estimate_difference([1.0] * 9, [1.2], earlier_runs).low is None
