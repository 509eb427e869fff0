import json
import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.planner.errors import PlannerError
from spbench.planner.output.plan_description import format_verification_cells
from spbench.planner.output.timeline_svg import render_timeline_svg
from spbench.planner.output.timeline_text import render_timeline_text
from spbench.planner.output.trace import build_trace
from spbench.planner.output.verification import TimeComparison, Verification, compare_with_run
from spbench.planner.plans import Plan, PlanStage
from spbench.planner.search.estimate import estimate_step
from spbench.planner.simulation.step import simulate
from spbench_core.schedule.orders import (
    STAGE_SCHEDULES,
    ZERO_BUBBLE,
    interleaved_in_flight,
    interleaved_order,
    stage_in_flight,
    stage_order,
)
from spbench_core.schedule.timetable import compute_step_end, compute_timetable
from unit.console.planner.brute import order, rounds_order, run, run_rounds, split_order
from unit.events import TIME, described, judged, metric, rank_event, started, state_of

WHOLE_BACKWARD = "gpipe", "1f1b", "1f1b-deep"
whole = st.integers(0, 9).map(float)


def stage(at, forward, backward, send=0.0, reduce=0.0, **more):
    return PlanStage(at, at + 1, (at,), forward, backward, send, reduce, 0.0, **more)


def plan_of(stages, micro_batches, schedule="1f1b"):
    names = tuple(f"s{at}" for at in range(len(stages)))
    return Plan(
        "best",
        "model",
        "cluster",
        names,
        micro_batches,
        1,
        micro_batches,
        schedule,
        1,
        1.0,
        1.0,
        tuple(stages),
    )


def drawn(simulation, stage):
    """The passes of a stage as ``F0@0``: what, of which micro-batch, from when."""
    return " ".join(
        f"{span.kind[0].upper()}{span.micro_batch}@{span.start_s:g}"
        for span in simulation.spans
        if span.stage == stage and span.kind in ("forward", "backward")
    )


def even(stages, **more):
    return [stage(at, 1.0, 2.0, **more) for at in range(stages)]


@pytest.mark.parametrize(
    ("schedule", "first", "second", "seconds", "flight"),
    [
        (
            "1f1b",
            "F0@0 F1@1 B0@4 F2@6 B1@7 B2@10",
            "F0@1 B0@2 F1@4 B1@5 F2@7 B2@8",
            12,
            (2, 1),
        ),
        (
            "1f1b-deep",
            "F0@0 F1@1 F2@2 B0@4 B1@7 B2@10",
            "F0@1 B0@2 F1@4 B1@5 F2@7 B2@8",
            12,
            (3, 1),
        ),
        (
            "gpipe",
            "F0@0 F1@1 F2@2 B0@6 B1@8 B2@10",
            "F0@1 F1@2 F2@3 B0@4 B1@6 B2@8",
            12,
            (3, 3),
        ),
    ],
)
def test_two_even_stages_by_hand(schedule, first, second, seconds, flight):
    found = simulate(plan_of(even(2), 3, schedule))
    assert drawn(found, 0) == first
    assert drawn(found, 1) == second
    assert found.step_s == seconds
    assert found.in_flight == flight
    assert found.bubble == pytest.approx(1 - 18 / 24)


def test_gradients_of_weights_fill_the_bubble_by_hand():
    # Backward takes 2: 1 for the gradients of data, B, and 1 for those of weights, W.
    found = simulate(plan_of(even(2), 3, "zb-h1"))
    kinds = "forward", "backward", "weights"
    first, second = (
        " ".join(
            f"{'FBW'[kinds.index(span.kind)]}{span.micro_batch}@{span.start_s:g}"
            for span in found.spans
            if span.stage == at
        )
        for at in range(2)
    )
    assert first == "F0@0 F1@1 B0@3 W0@4 F2@5 B1@6 W1@7 B2@8 W2@9"
    assert second == "F0@1 B0@2 F1@3 B1@4 W0@5 F2@6 B2@7 W1@8 W2@9"
    assert (found.step_s, found.in_flight) == (10, (2, 2))
    assert found.bubble == pytest.approx(1 - 18 / 20)
    assert render_timeline_text(found, 28)[:2] == [
        "stage 0 0011..aaAA22bbBBccCC",
        "stage 1 ..00aa11bbAA22ccBBCC",
    ]


def test_messages_and_all_reduce_by_hand():
    # F0 0-2, send 2-3, F0' 3-5, B0' 5-9, return 9-10, B0 10-14; the first stage sums until 17.
    stages = [stage(0, 2.0, 4.0, 1.0, 3.0), stage(1, 2.0, 4.0, 0.0, 9.0)]
    found = simulate(plan_of(stages, 1))
    spans = [(span.kind, span.stage, span.start_s, span.end_s) for span in found.spans]
    assert spans == [
        ("forward", 0, 0, 2),
        ("send", 0, 2, 3),
        ("backward", 0, 10, 14),
        ("all-reduce", 0, 14, 17),
        ("forward", 1, 3, 5),
        ("backward", 1, 5, 9),
        ("return", 1, 9, 10),
        ("all-reduce", 1, 9, 18),
    ]
    assert found.step_s == 18
    assert found.bubble == pytest.approx(1 - 12 / 28)


def test_deep_fills_the_round_trip_that_1f1b_waits_for():
    stages = [stage(0, 1.0, 1.0, 2.0), stage(1, 1.0, 1.0)]
    assert drawn(simulate(plan_of(stages, 4, "1f1b")), 0) == (
        "F0@0 F1@1 B0@7 F2@8 B1@9 F3@10 B2@15 B3@17"
    )
    assert simulate(plan_of(stages, 4, "1f1b")).step_s == 18
    assert drawn(simulate(plan_of(stages, 4, "1f1b-deep")), 0) == (
        "F0@0 F1@1 F2@2 B0@7 F3@8 B1@9 B2@11 B3@15"
    )
    assert simulate(plan_of(stages, 4, "1f1b-deep")).step_s == 16


def test_an_overlapped_all_reduce_starts_before_the_last_backward_pass_ends():
    found = simulate(plan_of([stage(0, 1.0, 4.0, 0.0, 5.0, overlapped_s=3.0)], 2))
    last = found.spans[-1]
    assert (last.kind, last.start_s, last.end_s) == ("all-reduce", 7, 12)
    assert found.step_s == 12


def test_memory_is_that_of_the_micro_batches_in_flight():
    stages = even(3, fixed_bytes=100.0, held_bytes=10.0, once_bytes=1.0)
    peaks = {name: simulate(plan_of(stages, 8, name)).peak_bytes for name in STAGE_SCHEDULES}
    assert peaks == {
        "gpipe": (181, 181, 181),
        "1f1b": (131, 121, 111),
        "1f1b-deep": (151, 131, 111),
        "zb-h1": (131, 131, 131),
    }


def in_rounds(rounds, groups=2, send=0.0, **more):
    """Even stages, one of each group in every round."""
    return [
        PlanStage(at, at + 1, (at % groups,), 1.0, 2.0, send, 0.0, 0.0, **more)
        for at in range(rounds * groups)
    ]


def test_an_interleaved_step_drawn_by_hand():
    found = simulate(plan_of(in_rounds(2), 4, "interleaved"))
    assert [drawn(found, at) for at in range(4)] == [
        "F0@0 F1@1 F2@4 F3@8 B0@12 B1@15 B2@23 B3@25",
        "F0@1 F1@2 F2@9 B0@10 F3@12 B1@13 B2@21 B3@23",
        "F0@2 F1@3 B0@6 B1@9 F2@11 F3@14 B2@18 B3@21",
        "F0@3 B0@4 F1@6 B1@7 F2@15 B2@16 F3@18 B3@19",
    ]
    assert found.step_s == 27
    assert found.bubble == pytest.approx(1 / 9)


def test_rounds_leave_groups_idle_for_less_time():
    """Of even stages each of S groups waits (S - 1) of the passes of one stage, both ways."""
    steps = [
        simulate(plan_of(in_rounds(rounds, 3), 6, "interleaved")).step_s for rounds in (2, 3, 4)
    ]
    assert steps == [6 * 3 * rounds + 2 * 3 for rounds in (2, 3, 4)]


def test_a_message_of_a_group_waits_for_the_one_before_it():
    found = simulate(plan_of(in_rounds(2, send=3.0), 2, "interleaved"))
    sends = sorted(
        (span.start_s, span.end_s)
        for span in found.spans
        if (span.stage % 2, span.kind) in {(0, "send")} or (span.stage, span.kind) == (2, "return")
    )
    assert all(a[1] <= b[0] for a, b in pairwise(sends))
    assert len(sends) == 3 * 2


def test_memory_of_an_interleaved_step_is_that_of_all_stages_of_a_device():
    stages = in_rounds(2, fixed_bytes=100.0, held_bytes=10.0, once_bytes=1.0)
    found = simulate(plan_of(stages, 4, "interleaved"))
    assert interleaved_in_flight(0, 2, 2, 4) == ((3, 2), (4, 1))
    assert found.peak_bytes == (251, 231, 251, 231)
    assert found.kept_bytes == (50, 30, 50, 30)


def test_stages_of_the_same_devices_are_measured_in_one_row():
    plan = plan_of(in_rounds(4), 4, "interleaved")
    figures = Verification(
        TimeComparison(9.0, 10.0), (TimeComparison(4.0, 5.0), TimeComparison(3.0, 2.0)), 0, {}
    )
    rows = format_verification_cells(plan, figures)
    assert [row[0] for row in rows] == ["0,2,4,6", "1,3,5,7", "step"]
    assert rows[0] == ("0,2,4,6", "s0, s2, s4, s6", "4.00 ms", "5.00 ms", "-20.0 %")


@pytest.mark.parametrize(
    ("plan", "schedule", "says"),
    [
        (plan_of(even(2), 2), "interleaved", "nothing to interleave"),
        (plan_of(in_rounds(2), 2, "interleaved"), "1f1b", "each device has 2 stages"),
        (plan_of(in_rounds(2), 3, "interleaved"), None, "3 micro-batches cannot be interleaved"),
    ],
)
def test_stages_that_are_not_those_of_the_schedule(plan, schedule, says):
    with pytest.raises(PlannerError, match=says):
        simulate(plan, schedule=schedule)


@st.composite
def rounds_of(draw):
    """Groups, rounds, micro-batches, and stages with times in whole seconds."""
    groups = draw(st.integers(2, 4))
    rounds = draw(st.integers(2, 3))
    count = groups * draw(st.integers(1, 3))
    stages = [
        PlanStage(
            at,
            at + 1,
            (at % groups,),
            float(draw(st.integers(1, 9))),
            float(draw(st.integers(1, 9))),
            draw(whole) if at + 1 < groups * rounds else 0.0,
            draw(st.sampled_from([0.0, 5.0, 40.0])),
            0.0,
        )
        for at in range(groups * rounds)
    ]
    return groups, rounds, count, stages


@given(rounds_of())
def test_an_interleaved_step_is_what_fixed_points_give(drawn_rounds):
    groups, rounds, count, stages = drawn_rounds
    times = [(each.forward_s, each.backward_s, each.all_reduce_s) for each in stages]
    found = compute_timetable(stages, "interleaved", count, rounds)
    assert found.end_s == run_rounds(times, [each.send_s for each in stages], groups, count)
    assert estimate_step(stages, "interleaved", count, rounds) <= found.end_s
    for group in range(groups):
        order = interleaved_order(group, groups, rounds, range(count))
        told = [(task.kind[0].upper(), task.stage, task.micro_batch) for task in order]
        assert told == rounds_order(group, groups, rounds, count)


@given(rounds_of(), st.floats(0.0, 2.0))
def test_an_interleaved_step_is_cut_off_where_it_ends_after_the_limit(drawn_rounds, share):
    _, rounds, count, stages = drawn_rounds
    end = compute_timetable(stages, "interleaved", count, rounds).end_s
    found = compute_step_end(stages, "interleaved", count, rounds, limit=share * end)
    assert found == end if share >= 1.0 else found in (end, math.inf)


def test_several_rounds_are_of_interleaved_steps_only():
    with pytest.raises(ValueError, match="1f1b has one round"):
        compute_timetable([stage(at, 1.0, 2.0) for at in range(4)], "1f1b", 8, rounds=2)


def test_an_interleaved_step_is_cut_off_where_its_passes_alone_take_longer():
    stages = [stage(at, 1.0, 2.0) for at in range(4)]
    assert (
        compute_step_end(stages, "interleaved", 8, 2)
        == compute_timetable(stages, "interleaved", 8, 2).end_s
    )
    assert compute_step_end(stages, "interleaved", 8, 2, limit=2 * 8 * 3.0 - 1.0) == math.inf


@st.composite
def pipelines(draw, most=5):
    """Stages with times in whole seconds, whose sums are exact."""
    count = draw(st.integers(1, most))
    return [
        stage(
            at,
            float(draw(st.integers(1, 9))),
            float(draw(st.integers(1, 9))),
            draw(whole) if at + 1 < count else 0.0,
            draw(st.sampled_from([0.0, 5.0, 40.0])),
            data_share=draw(st.sampled_from([0.5, 0.25, 0.75, 1.0])),
        )
        for at in range(count)
    ]


counts = st.integers(1, 12)


@given(pipelines(), counts, st.sampled_from(STAGE_SCHEDULES))
def test_simulated_is_what_fixed_points_give(stages, count, schedule):
    times = [(each.forward_s, each.backward_s, each.all_reduce_s) for each in stages]
    flight = [stage_in_flight(schedule, at, len(stages), count) for at in range(len(stages))]
    orders = [order(kept, count) for kept in flight]
    if schedule == ZERO_BUBBLE:
        orders = [split_order(at, len(stages), count) for at in range(len(stages))]
        for at, expected in enumerate(orders):
            tasks = stage_order(schedule, at, len(stages), range(count))
            told = {"forward": "F", "data": "B", "weights": "W"}
            assert [(told[task.kind], task.micro_batch) for task in tasks] == expected
    sends = [each.send_s for each in stages]
    shares = [(each.backward_s, each.data_share) for each in stages]
    parts = [(backward * share, backward * (1.0 - share)) for backward, share in shares]
    assert compute_timetable(stages, schedule, count).end_s == run(
        times, sends, orders, count, parts
    )


@given(pipelines(), counts)
def test_the_closed_form_of_gpipe_is_exact(stages, count):
    assert estimate_step(stages, "gpipe", count) == compute_timetable(stages, "gpipe", count).end_s


@given(pipelines(), counts, st.sampled_from(STAGE_SCHEDULES))
def test_the_closed_form_is_never_above_the_step_time(stages, count, schedule):
    assert (
        estimate_step(stages, schedule, count) <= compute_timetable(stages, schedule, count).end_s
    )


@given(
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 9),
    st.lists(whole, min_size=6, max_size=6),
    counts,
    st.sampled_from(WHOLE_BACKWARD),
)
def test_the_closed_form_of_even_stages_without_messages_is_exact(
    stages, forward, backward, reduces, count, schedule
):
    row = [stage(at, float(forward), float(backward), 0.0, reduces[at]) for at in range(stages)]
    assert estimate_step(row, schedule, count) == compute_timetable(row, schedule, count).end_s


@given(pipelines(2), counts, st.sampled_from(STAGE_SCHEDULES))
def test_spans_of_a_device_or_link_do_not_overlap_and_follow_one_another(stages, count, schedule):
    found = simulate(plan_of(stages, count, schedule))
    for at, each in enumerate(stages):
        mine = [span for span in found.spans if span.stage == at]
        for kinds in ({"forward", "backward", "weights"}, {"send"}, {"return"}):
            row = [span for span in mine if span.kind in kinds]
            assert all(a.end_s <= b.start_s for a, b in pairwise(row))
        forward = {span.micro_batch: span for span in mine if span.kind == "forward"}
        backward = {span.micro_batch: span for span in mine if span.kind == "backward"}
        assert set(forward) == set(backward) == set(range(count))
        assert all(forward[k].end_s <= backward[k].start_s for k in range(count))
        rows = [(forward, each.forward_s), (backward, each.backward_s)]
        if schedule == ZERO_BUBBLE:
            weights = {span.micro_batch: span for span in mine if span.kind == "weights"}
            assert all(backward[k].end_s <= weights[k].start_s for k in range(count))
            data_s = each.backward_s * each.data_share
            rows = [rows[0], (backward, data_s), (weights, each.backward_s - data_s)]
        assert all(
            span.end_s - span.start_s == seconds for row, seconds in rows for span in row.values()
        )
    assert found.in_flight == tuple(
        stage_in_flight(schedule, at, len(stages), count) for at in range(len(stages))
    )


def test_the_timeline_as_text():
    plan = plan_of(even(2, reduce=2.0), 3)
    assert render_timeline_text(simulate(plan), 36) == [
        "stage 0 0011....aaaa22bbbb..cccc====",
        "stage 1 ..00aaaa11bbbb22cccc====....",
        "        0                     14.0 s",
    ]
    assert all(len(line) == 80 for line in render_timeline_text(simulate(plan), 80))
    assert all(len(line) == 20 for line in render_timeline_text(simulate(plan), 1))


def test_the_timeline_as_svg():
    plan = plan_of([stage(0, 1.0, 2.0, 0.5, 1.0), stage(1, 1.0, 2.0)], 3)
    found = simulate(plan)
    root = ElementTree.fromstring(render_timeline_svg(plan, found, 800))
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in root.iter(f"{space}rect") if rect.find(f"{space}title") is not None]
    assert len(bars) == len(found.spans)
    assert all(0 <= float(bar.get("x")) <= 800 for bar in bars)
    assert root.find(f"{space}title").text == "model on cluster, 1f1b"


def test_the_timeline_as_a_trace():
    plan = plan_of([stage(0, 1.0, 2.0, 0.5, 1.0), stage(1, 1.0, 2.0)], 3)
    found = simulate(plan)
    told = json.loads(json.dumps(build_trace(plan, found)))
    events = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(found.spans)
    assert max(event["ts"] + event["dur"] for event in events) == found.step_s * 1e6
    assert {event["pid"] for event in events} == {0, 1}
    names = [event["args"]["name"] for event in told["traceEvents"] if event["ph"] == "M"]
    assert "stage 0: s0, on 1 device" in names


def test_the_times_of_the_busiest_rank_add_up_to_the_step():
    def of(name, *by_rank):
        return [rank_event("samples", rank, metric=name, values=[ms]) for rank, ms in by_rank]

    phases = [metric(name, "ms", part_of="time_ms") for name in ("forward_ms", "bubble_ms")]
    events = [
        *started(described(metrics=[TIME, *phases])),
        *of("time_ms", (0, 9.0), (1, 10.0)),
        *of("forward_ms", (0, 4.0), (1, 7.0)),
        *of("bubble_ms", (0, 5.0), (1, 2.0)),
        judged(),
    ]
    case = state_of(events).cases["a"]
    for rank, part in case.measured.ranks.items():
        part.coordinates = {"stage": rank}
    plan = plan_of(even(2), 2)
    figures = compare_with_run(plan, case)
    assert figures.rank == 1
    assert figures.spent == pytest.approx(
        {
            "passes and messages": 7.0,
            "allreduce": 0.0,
            "optimizer": 0.0,
            "bubble": 2.0,
            "other": 1.0,
        }
    )
