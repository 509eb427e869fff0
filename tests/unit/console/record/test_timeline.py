import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.timeline import MetricTimeline, compute_timeline
from unit.events import TIME, described, metric, rank_event, started, state_of

METRICS = [
    TIME,
    metric("rate", "GB/s", "higher", "min"),
    metric("total", "1", "none", "sum"),
    metric("usual", "1", "lower", "mean"),
]


def state_with(*events, np=2, repeat=2):
    return state_of([*started(described(np=np, repeat=repeat, metrics=METRICS)), *events])


def samples(rank, *values, repeat=0, metric="time_ms"):
    return rank_event("samples", rank, values=list(values), repeat=repeat, metric=metric)


def single(rank, value, repeat=0, name="rate"):
    return rank_event("metric", rank, name=name, value=value, repeat=repeat)


def case_with(*events, **fields):
    return state_with(*events, **fields).cases["a"]


def test_a_ranks_values_stand_one_after_another():
    case = case_with(samples(0, 1.0, 2.0), samples(1, 9.0), samples(0, 3.0))
    assert compute_timeline(case, "time_ms", 0, 10) == [1.0, 2.0, 3.0]
    assert compute_timeline(case, "time_ms", 1, 10) == [9.0]


def test_repeats_stand_in_their_order():
    case = case_with(samples(0, 3.0, repeat=1), samples(0, 1.0, 2.0))
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
def test_all_ranks_are_folded_as_the_metric_says_as_far_as_all_have_it(name, points):
    case = case_with(
        samples(0, 1.0, 2.0, 3.0, 99.0, metric=name), samples(1, 4.0, 5.0, 3.0, metric=name)
    )
    assert compute_timeline(case, name, None, 10) == points


@pytest.mark.parametrize(
    ("name", "points"),
    [("time_ms", [5.0, 6.0, 4.0]), ("rate", [1.0, 2.0, 3.0]), ("total", [5.0, 6.0, 4.0])],
)
def test_each_point_is_the_worst_of_its_slice(name, points):
    case = case_with(samples(0, 1.0, 5.0, 2.0, 6.0, 4.0, 3.0, metric=name))
    assert compute_timeline(case, name, 0, 3) == points


def test_a_rank_that_has_not_begun_keeps_times_back():
    case = case_with(samples(0, 1.0))
    assert compute_timeline(case, "time_ms", None, 10) == []


def test_a_metric_that_some_ranks_alone_give_is_shown():
    case = case_with(samples(0, 1.0, 2.0, metric="rate"))
    assert compute_timeline(case, "rate", None, 10) == [1.0, 2.0]


def test_nothing_measured_has_no_points():
    case = case_with()
    assert [compute_timeline(case, "rate", rank, 10) for rank in (None, 0)] == [[], []]
    assert compute_timeline(case_with(samples(0, 1.0)), "time_ms", 1, 10) == []


def test_a_value_a_repeat_is_a_point_a_repeat():
    case = case_with(single(1, 5.0, repeat=1), single(0, 3.0), single(1, 2.0), single(0, None, 1))
    assert compute_timeline(case, "rate", None, 10) == [2.0, 5.0]
    assert compute_timeline(case, "rate", 0, 10) == [3.0]
    assert compute_timeline(case, "rate", 1, 10) == [2.0, 5.0]


def test_what_comes_later_is_added():
    state = state_with()
    seen = MetricTimeline(state.cases["a"], "time_ms")
    for event, points in [
        (samples(0, 1.0, 8.0), []),
        (samples(1, 2.0), [2.0]),
        (samples(1, 3.0, 4.0), [2.0, 8.0]),
        (samples(0, 7.0), [2.0, 8.0, 7.0]),
        (samples(1, 6.0, repeat=1), [2.0, 8.0, 7.0]),
        (samples(0, 5.0, repeat=1), [2.0, 8.0, 7.0, 6.0]),
    ]:
        state.apply(event)
        assert seen.points(10) == points


def test_a_rank_that_comes_later_is_folded_in_from_the_start():
    state = state_with(samples(0, 1.0, 5.0, metric="rate"))
    seen = MetricTimeline(state.cases["a"], "rate")
    assert seen.points(10) == [1.0, 5.0]
    state.apply(samples(1, 3.0, 3.0, metric="rate"))
    assert seen.points(10) == [1.0, 3.0]


@given(
    st.lists(st.lists(st.floats(0, 1e6), max_size=20), min_size=2, max_size=2),
    st.integers(1, 30),
)
def test_points_are_the_worst_of_all_that_is_folded(rows, width):
    case = case_with(*(samples(rank, *values) for rank, values in enumerate(rows)))
    points = compute_timeline(case, "time_ms", None, width)
    [folded] = case.fold_samples("time_ms") or [[]]
    assert len(points) == min(width, len(folded))
    assert max(points, default=0) == max(folded, default=0)
    if len(folded) <= width:
        assert points == folded


def test_a_spike_in_many_samples_is_seen():
    numbers = random.Random(5)
    values = [numbers.uniform(1.0, 2.0) for _ in range(20_000)]
    values[12_345] = 77.0
    points = compute_timeline(case_with(samples(0, *values)), "time_ms", 0, 100)
    assert len(points) == 100
    assert points.index(77.0) == 12_345 * 100 // 20_000
