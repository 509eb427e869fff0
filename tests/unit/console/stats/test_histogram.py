"""Tests of the bins of histograms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.stats.histogram import make_bins
from spbench.stats.sorted_samples import SortedSamples

value = st.floats(-1e6, 1e6) | st.floats(1e-9, 1e-3) | st.integers(-2, 9).map(float)
sample_lists = st.lists(value, min_size=1, max_size=80)


@given(values=sample_lists, count=st.integers(1, 50))
def test_every_sample_is_in_a_bin_or_above_range(values, count):
    bins = make_bins(SortedSamples(values), count)
    assert len(bins.counts) == len(bins.edges) - 1 == count
    assert min(bins.counts) >= 0
    assert sum(bins.counts) + bins.above_range == len(values)
    assert bins.above_range <= max(1, 0.1 * len(values) + 1)
    assert bins.edges[0] == min(values)
    assert bins.above_range or bins.edges[-1] >= max(values)
    assert list(bins.edges) == sorted(bins.edges)


def test_bins_match_a_hand_calculation():
    bins = make_bins(SortedSamples([0.0, 1.0, 1.5, 2.0, 3.9, 4.0]), 4)
    assert bins.edges == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert bins.counts == (1, 2, 1, 2)


def test_long_tail_is_counted_above_range():
    values = [1.0 + index / 1e4 for index in range(9_999)] + [500.0]
    bins = make_bins(SortedSamples(values), 10)
    assert bins.edges[-1] < 2.1
    assert bins.above_range in range(1, 12)
    assert sum(bins.counts) + bins.above_range == 10_000
    full = make_bins(SortedSamples(values), 10, full_range=True)
    assert (full.edges[-1], full.above_range, full.counts[-1]) == (500.0, 0, 1)


def test_outlier_does_not_widen_the_bins():
    bins = make_bins(SortedSamples([1.0 + index / 100 for index in range(20)] + [500.0]), 10)
    assert bins.edges[-1] < 1.6
    assert bins.above_range == 1


def test_second_group_of_samples_is_in_range():
    bins = make_bins(SortedSamples([1.0] * 80 + [500.0] * 20), 10)
    assert (bins.edges[-1], bins.above_range) == (500.0, 0)


@pytest.mark.parametrize("alike", [10.0, 0.0, -3.0])
def test_equal_samples_share_the_first_bin(alike):
    bins = make_bins(SortedSamples([alike] * 7), 5)
    assert bins.counts == (7, 0, 0, 0, 0)
    assert bins.edges[0] == alike < bins.edges[1]


def test_sample_just_beyond_the_fence_is_drawn():
    samples = SortedSamples([9.0, *[9.6, 9.8, 10.0, 10.2] * 5, 12.1])
    assert make_bins(samples, 10).above_range == 0
