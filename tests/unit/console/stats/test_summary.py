"""Tests of summaries, medians and percentiles against numpy and scipy."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import quantile_test

from spbench.stats.summary import (
    lower_median,
    median,
    median_interval,
    median_of_repeats,
    percentile,
    summarize,
    summarize_repeats,
)

times = st.floats(1e-6, 1e9) | st.integers(0, 10).map(float)
samples = st.lists(times, min_size=1, max_size=60)
CLOSE = {"rel": 1e-9, "abs": 1e-9}


@given(samples, st.floats(0, 1))
def test_percentile_matches_numpy(values, fraction):
    expected = float(np.percentile(values, 100 * fraction))
    assert percentile(sorted(values), fraction) == pytest.approx(expected, **CLOSE)


@given(samples)
def test_median_matches_numpy(values):
    assert median(values) == pytest.approx(float(np.median(values)), **CLOSE)


@pytest.mark.parametrize("n", range(1, 80))
def test_median_interval_matches_scipy(n):
    values = [float(value) for value in range(1, n + 1)]
    expected = quantile_test(values, p=0.5).confidence_interval(confidence_level=0.95)
    interval = median_interval(reversed(values)) or (math.nan, math.nan)
    assert interval == pytest.approx((expected.low, expected.high), nan_ok=True)
    assert math.isnan(interval[0]) == (n < 6)


@given(samples)
def test_summary_matches_numpy(values):
    summary = summarize(iter(values))
    assert summary.n == len(values)
    assert (summary.min, summary.max) == (min(values), max(values))
    assert summary.mean == pytest.approx(float(np.mean(values)), **CLOSE)
    for name, percent in (("p50", 50), ("p95", 95), ("p99", 99)):
        expected = float(np.percentile(values, percent))
        assert getattr(summary, name) == pytest.approx(expected, **CLOSE)
    stdev = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    assert summary.stdev == pytest.approx(stdev, rel=1e-6, abs=1e-9 * max(values))


@given(samples)
def test_percentiles_of_a_summary_are_ordered(values):
    summary = summarize(values)
    ordered = [summary.min, summary.p50, summary.p95, summary.p99, summary.max]
    assert all(low <= high or math.isclose(low, high) for low, high in pairwise(ordered))


def test_percentiles_are_interpolated():
    assert [percentile([10.0, 20.0, 40.0], fraction) for fraction in (0, 0.25, 0.5, 0.75, 1)] == [
        10.0,
        15.0,
        20.0,
        30.0,
        40.0,
    ]


def test_summary_of_one_value():
    summary = summarize([3.5])
    assert (summary.n, summary.min, summary.p50, summary.p99, summary.max, summary.mean) == (
        1,
        *[3.5] * 5,
    )
    assert summary.stdev == 0.0


def test_no_values_have_no_summary():
    assert summarize([]) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], 3.0), ([9.0, 1.0], 1.0), ([9.0, 1.0, 2.0], 2.0), ([4.0, 3.0, 2.0, 1.0], 2.0)],
)
def test_lower_median_of_an_even_count(values, expected):
    assert lower_median(iter(values)) == expected


def test_repeats_have_equal_weight():
    repeats = [[1.0] * 100, [2.0, 4.0, 3.0], [], [9.0]]
    assert median_of_repeats(repeats) == 3.0
    assert median_of_repeats([*repeats, [5.0]]) == 4.0
    summary = summarize_repeats(repeats)
    assert (summary.n, summary.min, summary.p50, summary.max) == (104, 1.0, 3.0, 9.0)
    assert summarize_repeats([[], []]) is None


@given(st.lists(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9), min_size=1, max_size=9))
def test_rates_of_repeats_follow_from_their_times(times):
    if len(times) % 2 == 0:
        times.pop()
    rates = [[64.0 / median(repeat)] for repeat in times]
    rate = summarize_repeats(rates).p50
    assert rate == pytest.approx(64.0 / summarize_repeats(times).p50)
