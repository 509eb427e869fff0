"""The distributions of iterations on one axis."""

from collections.abc import Iterable

import pytest

from spbench.report.distribution import TimeDistribution, fit_axis, make_distribution


def make_times(
    name: str, times_ms: Iterable[float], median: float | None = None
) -> TimeDistribution:
    distribution = make_distribution(name, times_ms, median)
    assert distribution is not None
    return distribution


def test_describes_median_quartiles_and_count():
    distribution = make_times("a", [0.004, 0.001, 0.002, 0.003, 0.005], 0.003)
    assert distribution.quartiles == (0.002, 0.004)
    expected = "a: median 3.00 us, quartiles 2.00 us and 4.00 us, 5 iterations"
    assert distribution.describe() == expected


def test_single_run_has_no_name():
    distribution = make_times("", [1.0])
    expected = "median 1.00 ms, quartiles 1.00 ms and 1.00 ms, 1 iteration"
    assert distribution.describe() == expected


def test_there_is_no_distribution_without_times():
    assert make_distribution("a", [], 1.0) is None


def test_axis_covers_both_runs_and_counts_every_iteration():
    a = make_times("a", [1.0, 2.0, 3.0])
    b = make_times("b", [4.0, 5.0])
    axis = fit_axis([a, b])
    assert (axis.scale.low, axis.scale.high, axis.scale.log) == (1.0, 5.0, False)
    edges = axis.find_edges(4)
    assert edges == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert a.count_in_bins(edges).counts == (1, 1, 1, 0)
    assert b.count_in_bins(edges).counts == (0, 0, 0, 2)


def test_axis_of_very_different_runs_is_logarithmic():
    a = make_times("a", [0.01, 0.011])
    b = make_times("b", [1.0, 1.1])
    axis = fit_axis([a, b])
    assert axis.scale.log
    edges = axis.find_edges(3)
    assert edges[0] == pytest.approx(0.01)
    assert edges[-1] == pytest.approx(1.1)
    assert sum(b.count_in_bins(edges).counts) == 2


def test_axis_leaves_out_a_few_very_slow_iterations():
    a = make_times("a", [*(1.0 + 0.01 * index for index in range(50)), 900.0])
    axis = fit_axis([a])
    assert axis.scale.high < 4.0
    assert a.describe_beyond(axis) == "a: 1 beyond the axis, up to 900 ms"
    assert sum(a.count_in_bins(axis.find_edges(10)).counts) == 50


def test_equal_times_have_an_axis():
    a = make_times("a", [2.0, 2.0])
    axis = fit_axis([a])
    assert axis.scale.low < 2.0 < axis.scale.high
    assert sum(a.count_in_bins(axis.find_edges(5)).counts) == 2


@pytest.mark.parametrize("ends", [(0.97, 3.93), (0.88, 15.45)])
def test_last_bin_ends_exactly_at_the_largest_time(ends):
    times = make_times("a", [*ends, *ends])
    axis = fit_axis([times])
    assert axis.find_edges(7)[-1] == ends[1]
    assert sum(times.count_in_bins(axis.find_edges(7)).counts) == 4
