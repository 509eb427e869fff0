import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.histogram import Histogram, bins
from spbench.record.ordered import Ordered
from unit.events import TIME, described, metric, rank_event, started, state_of

value = st.floats(-1e6, 1e6) | st.floats(1e-9, 1e-3) | st.integers(-2, 9).map(float)
some = st.lists(value, min_size=1, max_size=80)


class Case:
    """A case of two ranks that takes samples."""

    def __init__(self):
        self.state = state_of(started(described(metrics=[TIME, metric("rate", "GB/s")])))
        self.case = self.state.cases["a"]

    def take(self, rank, *values, **fields):
        self.state.apply(rank_event("samples", rank, values=list(values), **fields))


def all_ranks(values):
    case = Case()
    case.take(0, *values)
    histogram = Histogram(case.case, "time_ms")
    histogram.update()
    return histogram


def made(n, spread):
    numbers = random.Random(3)
    return [10.0 * numbers.lognormvariate(0.0, spread) for _ in range(n)]


@pytest.mark.parametrize("kind", [Ordered, all_ranks])
@given(values=some, count=st.integers(1, 50))
def test_every_sample_is_in_a_bin_or_beyond(kind, values, count):
    found = bins(kind(values), count)
    assert len(found.counts) == len(found.edges) - 1 == count
    assert min(found.counts) >= 0
    assert sum(found.counts) + found.beyond == len(values)
    assert found.beyond <= max(1, 0.1 * len(values) + 1)
    assert found.edges[0] == min(values)
    assert found.beyond or found.edges[-1] >= max(values)
    assert list(found.edges) == sorted(found.edges)


def test_a_ranks_bins_are_exact():
    found = bins(Ordered([0.0, 1.0, 1.5, 2.0, 3.9, 4.0]), 4)
    assert found.edges == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert found.counts == (1, 2, 1, 2)


@pytest.mark.parametrize("spread", [0.003, 0.1, 1.0])
def test_bins_of_all_ranks_are_nearly_exact(spread):
    values = made(5000, spread)
    exact, near = bins(Ordered(values), 30), bins(all_ranks(values), 30)
    assert near.edges == pytest.approx(exact.edges, rel=2e-3)
    errors = [abs(a - b) for a, b in zip(exact.counts, near.counts, strict=True)]
    assert sum(errors) < 0.1 * len(values)
    assert max(errors) < 0.02 * len(values)


@pytest.mark.parametrize("kind", [Ordered, all_ranks])
def test_a_long_tail_is_counted_and_not_drawn(kind):
    values = [1.0 + index / 1e4 for index in range(9_999)] + [500.0]
    found = bins(kind(values), 10)
    assert found.edges[-1] < 2.1
    assert found.beyond in range(1, 12)
    assert sum(found.counts) + found.beyond == 10_000
    whole = bins(kind(values), 10, whole=True)
    assert (whole.edges[-1], whole.beyond, whole.counts[-1]) == (500.0, 0, 1)


@pytest.mark.parametrize("kind", [Ordered, all_ranks])
def test_one_outlier_is_counted_and_leaves_the_others_their_width(kind):
    found = bins(kind([1.0 + index / 100 for index in range(20)] + [500.0]), 10)
    assert found.edges[-1] < 1.6
    assert found.beyond == 1


@pytest.mark.parametrize("kind", [Ordered, all_ranks])
def test_a_second_group_of_samples_is_drawn(kind):
    found = bins(kind([1.0] * 80 + [500.0] * 20), 10)
    assert (found.edges[-1], found.beyond) == (500.0, 0)


@pytest.mark.parametrize("kind", [Ordered, all_ranks])
@pytest.mark.parametrize("alike", [10.0, 0.0, -3.0])
def test_samples_that_are_all_alike_share_the_first_bin(kind, alike):
    found = bins(kind([alike] * 7), 5)
    assert found.counts == (7, 0, 0, 0, 0)
    assert found.edges[0] == alike < found.edges[1]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=80), st.floats(0, 1))
def test_a_percentile_of_all_ranks_is_near(values, fraction):
    found = all_ranks(values).percentile(fraction)
    assert sum(value <= found * 1.001 for value in values) >= fraction * len(values)
    assert sum(value < found * 0.999 for value in values) <= fraction * len(values)


def test_samples_below_0_share_a_bin():
    histogram = all_ranks([-4.0, -2.0, 0.0, 1.0])
    assert [histogram.below(limit) for limit in (-5.0, -2.0, 0.0, 0.5)] == [0, 1.5, 3, 3]
    assert [histogram.percentile(part) for part in (0.5, 1.0)] == [0.0, 1.0]


def test_samples_are_taken_in_once():
    case = Case()
    histogram = Histogram(case.case, "time_ms")
    histogram.update()
    assert len(histogram) == 0
    case.take(0, 1.0, 2.0)
    case.take(1, 3.0)
    histogram.update()
    histogram.update()
    assert (len(histogram), histogram.least, histogram.greatest) == (3, 1.0, 3.0)
    case.take(0, 0.5)
    case.take(0, 4.0, repeat=1)
    histogram.update()
    assert (len(histogram), histogram.least, histogram.greatest) == (5, 0.5, 4.0)
    assert histogram.below(2.5) == 3


def test_it_is_of_one_metric_and_of_one_rank_where_it_is_asked_for():
    case = Case()
    case.take(0, 1.0, 2.0)
    case.take(1, 3.0)
    case.take(1, 50.0, metric="rate")
    one, rate = Histogram(case.case, "time_ms", 1), Histogram(case.case, "rate")
    one.update()
    rate.update()
    assert (len(one), one.least) == (1, 3.0)
    assert (len(rate), rate.least) == (1, 50.0)


def test_it_grows_with_the_spread_and_not_with_the_samples():
    histogram = all_ranks(made(20_000, 0.05))
    assert len(histogram._bins) < 500
