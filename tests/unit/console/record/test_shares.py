"""Shares of a step, and short descriptions of coordinates."""

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
from support.sample_events import (
    TIME,
    build_case_state,
    describe_case,
    describe_metric,
    make_phases_run,
    make_started_run,
    rank_event,
)

PARTS = [describe_metric(f"{name}_ms", "ms", part_of="time_ms") for name in ("work", "idle")]


def build_case(*events, metrics=(TIME, *PARTS)):
    return build_case_state([*make_started_run(describe_case(metrics=list(metrics))), *events])


def samples(name, *values, rank=0, repeat=0):
    return rank_event("samples", rank, metric=name, values=list(values), repeat=repeat)


def test_computes_shares_of_all_ranks_or_of_one(messages):
    case = build_case_state(make_phases_run())
    (shares,) = compute_all_shares(case)
    assert shares.metric == "time_ms"
    assert list(shares.parts) == ["spin", "send", "idle"]
    assert list(shares.parts.values()) == pytest.approx([0.6, 0.1, 0.2])
    assert shares.unaccounted == pytest.approx(0.1)
    messages.check(f"{shares.title}: {shares.text}")
    assert [
        compute_shares(case, "time_ms", rank).parts["idle"] for rank in range(3)
    ] == pytest.approx([0.1, 0.2, 0.3])
    assert list_ranks_with_shares(case) == [0, 1, 2]


def test_counts_only_iterations_with_known_parts(messages):
    case = build_case(
        samples("time_ms", 10.0, 90.0),
        samples("work_ms", 5.0),
        samples("time_ms", 10.0, repeat=1),
        samples("time_ms", 10.0, rank=1),
    )
    (shares,) = compute_all_shares(case)
    assert [*shares.parts.values()] == [0.5, 0.0]
    messages.check(shares.text)
    assert compute_all_shares(case, rank=1) == []


def test_weights_ranks_by_their_time():
    case = build_case(
        samples("time_ms", 30.0),
        samples("idle_ms", 30.0),
        samples("time_ms", 10.0, rank=1),
        samples("idle_ms", 0.0, rank=1),
    )
    assert compute_all_shares(case)[0].parts["idle"] == pytest.approx(0.75)


def test_names_a_whole_other_than_the_step():
    metrics = (
        TIME,
        describe_metric("send_ms", "ms"),
        describe_metric("sign_ms", "ms", part_of="send_ms"),
    )
    case = build_case(samples("send_ms", 4.0), samples("sign_ms", 1.0), metrics=metrics)
    assert [(shares.title, shares.text) for shares in compute_all_shares(case)] == [
        ("of send_ms", "sign 25 %, other 75 %")
    ]


@pytest.mark.parametrize(
    "events",
    [
        (),
        (samples("time_ms", 1.0),),
        (samples("work_ms", 1.0),),
        (samples("time_ms", 0.0), samples("work_ms", 0.0)),
        (samples("time_ms", 1.0), samples("work_ms", math.nan)),
    ],
)
def test_unmeasured_parts_have_no_shares(events):
    assert compute_all_shares(build_case(*events)) == []


def test_old_run_without_parts_has_no_shares():
    old = {name: value for name, value in PARTS[0].items() if name != "part_of"}
    case = build_case(samples("time_ms", 2.0), samples("work_ms", 1.0), metrics=(TIME, old))
    assert compute_all_shares(case) == []
    assert case.summary("work_ms").p50 == 1.0


def test_parts_longer_than_the_whole_leave_no_remainder(messages):
    case = build_case(samples("time_ms", 2.0), samples("work_ms", 3.0))
    messages.check(compute_all_shares(case)[0].text)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, "0 %"), (0.004, "<1 %"), (0.005, "<1 %"), (0.376, "38 %"), (1.0, "100 %")],
)
def test_formats_shares_as_whole_percentages(share, expected):
    assert format_whole_percent(share) == expected


# Coordinates


@pytest.mark.parametrize(
    ("coordinates", "expected"),
    [
        ({}, ""),
        ({"tile": "0,1"}, "tile 0,1"),
        ({"replica": 0, "stage": 1, "member": 2}, "replica 0 stage 1 member 2"),
        ({"replica": 0, "stage": 0, "mirrored_stage": 1}, "replica 0 stage 0+1"),
        ({"stage": 1, "mirrored_stage": 0, "mirrored_tile": "0,1"}, "stage 1+0 tile -+0,1"),
        ({"replica": 0, "stage": 1, "stages": "1,3", "member": 0}, "replica 0 stages 1,3 member 0"),
    ],
)
def test_describes_coordinates_in_short(coordinates, expected):
    assert describe_coordinates(shorten_coordinates(coordinates)) == expected


def test_lists_coordinate_names_with_width_and_variation():
    coordinates = [{"replica": 0, "stage": 0, "tile": "0,10"}, {"replica": 0, "stage": 1}]
    assert list_coordinate_names(coordinates) == (
        CoordinateName("replica", 1, False),
        CoordinateName("stage", 1, True),
        CoordinateName("tile", 4, True),
    )
    assert list_coordinate_names([]) == ()
