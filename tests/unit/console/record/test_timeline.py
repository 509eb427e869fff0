"""Values of a metric over time, reduced to a number of points."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.timeline import MetricTimeline, compute_timeline
from support.sample_events import (
    TIME,
    build_state,
    describe_case,
    describe_metric,
    make_started_run,
    rank_event,
)

METRICS = [
    TIME,
    describe_metric("rate", "GB/s", "higher", "min"),
    describe_metric("total", "1", "none", "sum"),
    describe_metric("usual", "1", "lower", "mean"),
]


def build_timeline_state(*events, np=2, repeat=2):
    return build_state(
        [*make_started_run(describe_case(np=np, repeat=repeat, metrics=METRICS)), *events]
    )


def samples(rank, *values, repeat=0, metric="time_ms"):
    return rank_event("samples", rank, values=list(values), repeat=repeat, metric=metric)


def metric_event(rank, value, repeat=0, name="rate"):
    return rank_event("metric", rank, name=name, value=value, repeat=repeat)


def build_case(*events, **fields):
    return build_timeline_state(*events, **fields).cases["a"]


def test_values_of_a_rank_are_in_order():
    case = build_case(samples(0, 1.0, 2.0), samples(1, 9.0), samples(0, 3.0))
    assert compute_timeline(case, "time_ms", 0, 10) == [1.0, 2.0, 3.0]
    assert compute_timeline(case, "time_ms", 1, 10) == [9.0]


def test_repeats_are_in_order():
    case = build_case(samples(0, 3.0, repeat=1), samples(0, 1.0, 2.0))
    assert compute_timeline(case, "time_ms", 0, 10) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("time_ms", [4.0, 5.0, 3.0]),
        ("rate", [1.0, 2.0, 3.0]),
        ("total", [5.0, 7.0, 6.0]),
        ("usual", [2.5, 3.5, 3.0]),
    ],
)
def test_folds_all_ranks_as_far_as_all_have_values(name, points):
    case = build_case(
        samples(0, 1.0, 2.0, 3.0, 99.0, metric=name), samples(1, 4.0, 5.0, 3.0, metric=name)
    )
    assert compute_timeline(case, name, None, 10) == points


@pytest.mark.parametrize(
    ("name", "points"),
    [("time_ms", [5.0, 6.0, 4.0]), ("rate", [1.0, 2.0, 3.0]), ("total", [5.0, 6.0, 4.0])],
)
def test_each_point_is_the_worst_of_its_slice(name, points):
    case = build_case(samples(0, 1.0, 5.0, 2.0, 6.0, 4.0, 3.0, metric=name))
    assert compute_timeline(case, name, 0, 3) == points


def test_rank_without_times_holds_back_the_points():
    case = build_case(samples(0, 1.0))
    assert compute_timeline(case, "time_ms", None, 10) == []


def test_shows_a_metric_that_only_some_ranks_report():
    case = build_case(samples(0, 1.0, 2.0, metric="rate"))
    assert compute_timeline(case, "rate", None, 10) == [1.0, 2.0]


def test_unmeasured_metric_has_no_points():
    case = build_case()
    assert [compute_timeline(case, "rate", rank, 10) for rank in (None, 0)] == [[], []]
    assert compute_timeline(build_case(samples(0, 1.0)), "time_ms", 1, 10) == []


def test_one_value_per_repeat_gives_one_point_per_repeat():
    case = build_case(
        metric_event(1, 5.0, repeat=1),
        metric_event(0, 3.0),
        metric_event(1, 2.0),
        metric_event(0, None, 1),
    )
    assert compute_timeline(case, "rate", None, 10) == [2.0, 5.0]
    assert compute_timeline(case, "rate", 0, 10) == [3.0]
    assert compute_timeline(case, "rate", 1, 10) == [2.0, 5.0]


def test_adds_later_values():
    state = build_timeline_state()
    timeline = MetricTimeline(state.cases["a"], "time_ms")
    for event, points in [
        (samples(0, 1.0, 8.0), []),
        (samples(1, 2.0), [2.0]),
        (samples(1, 3.0, 4.0), [2.0, 8.0]),
        (samples(0, 7.0), [2.0, 8.0, 7.0]),
        (samples(1, 6.0, repeat=1), [2.0, 8.0, 7.0]),
        (samples(0, 5.0, repeat=1), [2.0, 8.0, 7.0, 6.0]),
    ]:
        state.apply(event)
        assert timeline.points(10) == points


def test_folds_in_a_later_rank_from_its_first_value():
    state = build_timeline_state(samples(0, 1.0, 5.0, metric="rate"))
    timeline = MetricTimeline(state.cases["a"], "rate")
    assert timeline.points(10) == [1.0, 5.0]
    state.apply(samples(1, 3.0, 3.0, metric="rate"))
    assert timeline.points(10) == [1.0, 3.0]


@given(
    st.lists(st.lists(st.floats(0, 1e6), max_size=20), min_size=2, max_size=2),
    st.integers(1, 30),
)
def test_points_keep_the_worst_folded_value(rows, width):
    case = build_case(*(samples(rank, *values) for rank, values in enumerate(rows)))
    points = compute_timeline(case, "time_ms", None, width)
    [folded] = case.fold_samples("time_ms") or [[]]
    assert len(points) == min(width, len(folded))
    assert max(points, default=0) == max(folded, default=0)
    if len(folded) <= width:
        assert points == folded


def test_points_keep_a_spike_among_many_samples():
    random_source = random.Random(5)
    values = [random_source.uniform(1.0, 2.0) for _ in range(20_000)]
    values[12_345] = 77.0
    points = compute_timeline(build_case(samples(0, *values)), "time_ms", 0, 100)
    assert len(points) == 100
    assert points.index(77.0) == 12_345 * 100 // 20_000
