import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.stats.histogram import make_bins
from spbench.stats.sorted_samples import SortedSamples

value = st.floats(-1e6, 1e6) | st.floats(1e-9, 1e-3) | st.integers(-2, 9).map(float)
some = st.lists(value, min_size=1, max_size=80)


@given(values=some, count=st.integers(1, 50))
def test_every_sample_is_in_a_bin_or_beyond(values, count):
    found = make_bins(SortedSamples(values), count)
    assert len(found.counts) == len(found.edges) - 1 == count
    assert min(found.counts) >= 0
    assert sum(found.counts) + found.above_range == len(values)
    assert found.above_range <= max(1, 0.1 * len(values) + 1)
    assert found.edges[0] == min(values)
    assert found.above_range or found.edges[-1] >= max(values)
    assert list(found.edges) == sorted(found.edges)


def test_a_ranks_bins_are_exact():
    found = make_bins(SortedSamples([0.0, 1.0, 1.5, 2.0, 3.9, 4.0]), 4)
    assert found.edges == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert found.counts == (1, 2, 1, 2)


def test_a_long_tail_is_counted_and_not_drawn():
    values = [1.0 + index / 1e4 for index in range(9_999)] + [500.0]
    found = make_bins(SortedSamples(values), 10)
    assert found.edges[-1] < 2.1
    assert found.above_range in range(1, 12)
    assert sum(found.counts) + found.above_range == 10_000
    whole = make_bins(SortedSamples(values), 10, full_range=True)
    assert (whole.edges[-1], whole.above_range, whole.counts[-1]) == (500.0, 0, 1)


def test_one_outlier_is_counted_and_leaves_the_others_their_width():
    found = make_bins(SortedSamples([1.0 + index / 100 for index in range(20)] + [500.0]), 10)
    assert found.edges[-1] < 1.6
    assert found.above_range == 1


def test_a_second_group_of_samples_is_drawn():
    found = make_bins(SortedSamples([1.0] * 80 + [500.0] * 20), 10)
    assert (found.edges[-1], found.above_range) == (500.0, 0)


@pytest.mark.parametrize("alike", [10.0, 0.0, -3.0])
def test_samples_that_are_all_alike_share_the_first_bin(alike):
    found = make_bins(SortedSamples([alike] * 7), 5)
    assert found.counts == (7, 0, 0, 0, 0)
    assert found.edges[0] == alike < found.edges[1]
