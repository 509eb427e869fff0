"""The statistics of comparisons, held against scipy's and against simulated launches."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, mannwhitneyu

from spbench.stats.difference import (
    combine_chances,
    count_orders,
    estimate_difference,
    find_discoveries,
    least_launches,
    rank_test,
    smallest_chance,
)

LAUNCHES = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9, unique=True)


@given(LAUNCHES, LAUNCHES)
def test_chance_is_that_of_the_exact_rank_test(a: list[float], b: list[float]) -> None:
    if not set(a) & set(b):
        wanted = mannwhitneyu(a, b, method="exact").pvalue
        assert rank_test(a, b) == pytest.approx(wanted)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_chance_of_either_is_that_of_simes(first: float, second: float) -> None:
    """The least chance of two, corrected for false discoveries, is Simes'."""
    wanted = min(false_discovery_control([first, second]))
    assert combine_chances(first, second) == pytest.approx(wanted)


def test_equal_values_are_no_difference() -> None:
    assert rank_test([1.0] * 5, [1.0] * 5) == 1.0
    # A tie counts as half, and where halves remain the larger chance is told.
    assert rank_test([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) == pytest.approx(2 * 2 / 20)


def test_all_orders_are_counted() -> None:
    assert count_orders(2, 2) == (1, 1, 2, 1, 1)
    assert sum(count_orders(6, 9)) == 5005


def test_five_launches_a_side_cannot_go_below_one_in_126() -> None:
    assert smallest_chance(5, 5) == pytest.approx(1 / 126)
    assert [least_launches(n) for n in (1, 6, 7, 100)] == [4, 5, 6, 8]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_discoveries_are_those_of_benjamini_and_hochberg(chances: list[float]) -> None:
    wanted = [bool(one <= 0.05) for one in false_discovery_control(chances)]
    near = any(abs(one - 0.05) < 1e-9 for one in false_discovery_control(chances))
    assert near or find_discoveries(chances) == wanted


@pytest.mark.parametrize("launches", [4, 5, 8])
def test_the_interval_holds_the_ratio_in_95_of_100(launches: int) -> None:
    rng = random.Random(launches)
    held = 0
    for _ in range(2000):
        a, b = ([rng.lognormvariate(0.0, 0.1) for _ in range(launches)] for _ in "ab")
        found = estimate_difference(a, b)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.0 <= found.high
    assert held >= 0.95 * 2000 - 30


@given(LAUNCHES, LAUNCHES)
def test_the_ratio_is_that_of_the_medians_and_within_the_interval(
    a: list[float], b: list[float]
) -> None:
    found = estimate_difference(a, b)
    assert found.ratio == pytest.approx(median(b) / median(a))
    if found.low is not None and found.high is not None:
        assert found.low <= found.ratio * (1 + 1e-12)
        assert found.ratio <= found.high * (1 + 1e-12)


def test_an_interval_that_lies_elsewhere_is_widened_to_the_ratio() -> None:
    # Differences of pairs lie around 1, and the medians are in the two halves of the launches.
    a = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    b = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    found = estimate_difference(a, b)
    assert (found.ratio, found.high) == (2.0, 2.0)


def test_a_spread_between_runs_is_the_least_that_the_interval_allows_for() -> None:
    past = [[1.0], [1.1], [0.9], [1.05], [0.95], [1.0]]
    b = [1.2 + n / 1000 for n in range(5)]
    alone, widened = (
        estimate_difference([1.0 + n / 1000 for n in range(5)], b, of) for of in ((), past)
    )
    assert alone.low is not None
    assert alone.low > 1.0
    assert widened.past_runs == 6
    assert widened.low is not None
    assert widened.low < 1.0 < 1.2 < (widened.high or 0.0)
    assert estimate_difference(b, b, past[:4]).past_runs == 0


def test_too_few_launches_for_a_rank_test_have_no_interval() -> None:
    past = [[1.0]] * 10
    assert estimate_difference([1.0], [1.2], past).low is None
    assert estimate_difference([1.0] * 9, [1.2], past).low is None
