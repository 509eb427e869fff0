"""Shares of a step, and places in short."""

import math

import pytest

from spbench.record.coordinates import (
    CoordinateName,
    describe_coordinates,
    list_coordinate_names,
    shorten_coordinates,
)
from spbench.record.shares import (
    compute_all_shares,
    compute_shares,
    format_whole_percent,
    list_ranks_with_shares,
)
from unit.events import TIME, case_of, described, in_phases, metric, rank_event, started

PARTS = [metric(f"{name}_ms", "ms", part_of="time_ms") for name in ("work", "idle")]


def case_with(*events, metrics=(TIME, *PARTS)):
    return case_of([*started(described(metrics=list(metrics))), *events])


def given(name, *values, rank=0, repeat=0):
    return rank_event("samples", rank, metric=name, values=list(values), repeat=repeat)


def test_shares_are_of_all_ranks_or_of_one():
    case = case_of(in_phases())
    (of,) = compute_all_shares(case)
    assert of.metric == "time_ms"
    assert list(of.parts) == ["spin", "send", "idle"]
    assert list(of.parts.values()) == pytest.approx([0.6, 0.1, 0.2])
    assert of.unaccounted == pytest.approx(0.1)
    assert (
        f"{of.title}: {of.text}"
        == "mean step: spin 60 %, send 10 %, idle 20 %, packing and sending 10 %"
    )
    assert [
        compute_shares(case, "time_ms", rank).parts["idle"] for rank in range(3)
    ] == pytest.approx([0.1, 0.2, 0.3])
    assert list_ranks_with_shares(case) == [0, 1, 2]


def test_only_iterations_whose_parts_are_known_count():
    case = case_with(
        given("time_ms", 10.0, 90.0),
        given("work_ms", 5.0),
        given("time_ms", 10.0, repeat=1),
        given("time_ms", 10.0, rank=1),
    )
    (of,) = compute_all_shares(case)
    assert [*of.parts.values()] == [0.5, 0.0]
    assert of.text == "work 50 %, packing and sending 50 %"
    assert compute_all_shares(case, rank=1) == []


def test_slow_ranks_weigh_by_their_time():
    case = case_with(
        given("time_ms", 30.0),
        given("idle_ms", 30.0),
        given("time_ms", 10.0, rank=1),
        given("idle_ms", 0.0, rank=1),
    )
    assert compute_all_shares(case)[0].parts["idle"] == pytest.approx(0.75)


def test_another_whole_is_named():
    metrics = (TIME, metric("send_ms", "ms"), metric("sign_ms", "ms", part_of="send_ms"))
    case = case_with(given("send_ms", 4.0), given("sign_ms", 1.0), metrics=metrics)
    assert [(of.title, of.text) for of in compute_all_shares(case)] == [
        ("of send_ms", "sign 25 %, other 75 %")
    ]


@pytest.mark.parametrize(
    "events",
    [
        (),
        (given("time_ms", 1.0),),
        (given("work_ms", 1.0),),
        (given("time_ms", 0.0), given("work_ms", 0.0)),
        (given("time_ms", 1.0), given("work_ms", math.nan)),
    ],
)
def test_what_was_not_measured_has_no_shares(events):
    assert compute_all_shares(case_with(*events)) == []


def test_a_run_of_before_there_were_parts_has_no_shares():
    old = {name: value for name, value in PARTS[0].items() if name != "part_of"}
    case = case_with(given("time_ms", 2.0), given("work_ms", 1.0), metrics=(TIME, old))
    assert compute_all_shares(case) == []
    assert case.summary("work_ms").p50 == 1.0


def test_parts_that_take_longer_than_the_whole_leave_no_rest():
    case = case_with(given("time_ms", 2.0), given("work_ms", 3.0))
    assert compute_all_shares(case)[0].text == "work 150 %"


@pytest.mark.parametrize(
    ("part", "text"),
    [(0.0, "0 %"), (0.004, "<1 %"), (0.005, "<1 %"), (0.376, "38 %"), (1.0, "100 %")],
)
def test_per_cents_are_full(part, text):
    assert format_whole_percent(part) == text


# Places


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({}, ""),
        ({"tile": "0,1"}, "tile 0,1"),
        ({"replica": 0, "stage": 1, "member": 2}, "replica 0 stage 1 member 2"),
        ({"replica": 0, "stage": 0, "mirrored_stage": 1}, "replica 0 stage 0+1"),
        ({"stage": 1, "mirrored_stage": 0, "mirrored_tile": "0,1"}, "stage 1+0 tile -+0,1"),
        ({"replica": 0, "stage": 1, "stages": "1,3", "member": 0}, "replica 0 stages 1,3 member 0"),
    ],
)
def test_a_place_in_short(place, words):
    assert describe_coordinates(shorten_coordinates(place)) == words


def test_names_come_from_all_places_with_their_width_and_whether_they_differ():
    places = [{"replica": 0, "stage": 0, "tile": "0,10"}, {"replica": 0, "stage": 1}]
    assert list_coordinate_names(places) == (
        CoordinateName("replica", 1, False),
        CoordinateName("stage", 1, True),
        CoordinateName("tile", 4, True),
    )
    assert list_coordinate_names([]) == ()
