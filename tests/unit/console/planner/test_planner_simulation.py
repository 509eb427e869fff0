"""Tests of simulated steps, their estimates, and timelines."""

import json
import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.planner.errors import PlannerError
from spbench.planner.output.plan_description import (
    describe_run_noise,
    describe_step_rest,
    format_verification_cells,
)
from spbench.planner.output.timeline_svg import render_timeline_svg
from spbench.planner.output.timeline_text import render_timeline_text
from spbench.planner.output.trace import build_trace
from spbench.planner.output.verification import (
    TimeComparison,
    Verification,
    compare_step_parts,
    compare_with_run,
)
from spbench.planner.plans import Plan, PlanStage
from spbench.planner.search.estimate import estimate_step
from spbench.planner.simulation.step import simulate
from spbench_core.schedule.orders import (
    STAGE_SCHEDULES,
    ZERO_BUBBLE,
    count_in_flight,
    list_in_flight_combinations,
    list_interleaved_tasks,
    list_stage_tasks,
)
from spbench_core.schedule.timetable import compute_step_end, compute_timetable
from support.planner.brute_force import (
    build_order,
    build_rounds_order,
    build_split_order,
    compute_interleaved_step,
    compute_step,
)
from support.sample_events import (
    TIME,
    build_state,
    case_judged,
    describe_case,
    describe_metric,
    make_started_run,
    rank_event,
)

WHOLE_BACKWARD = "gpipe", "1f1b", "1f1b-deep"
whole_seconds = st.integers(0, 9).map(float)


def stage(index, forward, backward, send=0.0, reduce=0.0, **more):
    return PlanStage(index, index + 1, (index,), forward, backward, send, reduce, 0.0, **more)


def build_plan(stages, micro_batches, schedule="1f1b"):
    names = tuple(f"s{index}" for index in range(len(stages)))
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


def format_passes(simulation, stage):
    """Return the passes of a stage as ``F0@0``: kind, micro-batch, and start."""
    return " ".join(
        f"{span.kind[0].upper()}{span.micro_batch}@{span.start_s:g}"
        for span in simulation.spans
        if span.stage == stage and span.kind in ("forward", "backward")
    )


def build_even_stages(stages, **more):
    return [stage(index, 1.0, 2.0, **more) for index in range(stages)]


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
def test_two_even_stages_match_a_hand_calculation(schedule, first, second, seconds, flight):
    simulated = simulate(build_plan(build_even_stages(2), 3, schedule))
    assert format_passes(simulated, 0) == first
    assert format_passes(simulated, 1) == second
    assert simulated.step_s == seconds
    assert simulated.in_flight == flight
    assert simulated.bubble == pytest.approx(1 - 18 / 24)


def test_weight_gradients_fill_the_bubble():
    # Backward takes 2: 1 for the gradients of data, B, and 1 for those of weights, W.
    simulated = simulate(build_plan(build_even_stages(2), 3, "zb-h1"))
    kinds = "forward", "backward", "weights"
    first, second = (
        " ".join(
            f"{'FBW'[kinds.index(span.kind)]}{span.micro_batch}@{span.start_s:g}"
            for span in simulated.spans
            if span.stage == index
        )
        for index in range(2)
    )
    assert first == "F0@0 F1@1 B0@3 W0@4 F2@5 B1@6 W1@7 B2@8 W2@9"
    assert second == "F0@1 B0@2 F1@3 B1@4 W0@5 F2@6 B2@7 W1@8 W2@9"
    assert (simulated.step_s, simulated.in_flight) == (10, (2, 2))
    assert simulated.bubble == pytest.approx(1 - 18 / 20)
    assert render_timeline_text(simulated, 28)[:2] == [
        "stage 0 0011..aaAA22bbBBccCC",
        "stage 1 ..00aa11bbAA22ccBBCC",
    ]


def test_messages_and_all_reduce_match_a_hand_calculation():
    # F0 0-2, send 2-3, F0' 3-5, B0' 5-9, return 9-10, B0 10-14; the first stage sums until 17.
    stages = [stage(0, 2.0, 4.0, 1.0, 3.0), stage(1, 2.0, 4.0, 0.0, 9.0)]
    simulated = simulate(build_plan(stages, 1))
    spans = [(span.kind, span.stage, span.start_s, span.end_s) for span in simulated.spans]
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
    assert simulated.step_s == 18
    assert simulated.bubble == pytest.approx(1 - 12 / 28)


def test_deep_schedule_hides_the_round_trip():
    stages = [stage(0, 1.0, 1.0, 2.0), stage(1, 1.0, 1.0)]
    assert format_passes(simulate(build_plan(stages, 4, "1f1b")), 0) == (
        "F0@0 F1@1 B0@7 F2@8 B1@9 F3@10 B2@15 B3@17"
    )
    assert simulate(build_plan(stages, 4, "1f1b")).step_s == 18
    assert format_passes(simulate(build_plan(stages, 4, "1f1b-deep")), 0) == (
        "F0@0 F1@1 F2@2 B0@7 F3@8 B1@9 B2@11 B3@15"
    )
    assert simulate(build_plan(stages, 4, "1f1b-deep")).step_s == 16


def test_overlapped_all_reduce_starts_in_the_backward_pass():
    simulated = simulate(build_plan([stage(0, 1.0, 4.0, 0.0, 5.0, overlapped_s=3.0)], 2))
    last = simulated.spans[-1]
    assert (last.kind, last.start_s, last.end_s) == ("all-reduce", 7, 12)
    assert simulated.step_s == 12


def test_peak_memory_grows_with_micro_batches_in_flight():
    stages = build_even_stages(3, fixed_bytes=100.0, bytes_per_micro_batch=10.0, working_bytes=1.0)
    peaks = {name: simulate(build_plan(stages, 8, name)).peak_bytes for name in STAGE_SCHEDULES}
    assert peaks == {
        "gpipe": (181, 181, 181),
        "1f1b": (131, 121, 111),
        "1f1b-deep": (151, 131, 111),
        "zb-h1": (131, 131, 131),
    }


def build_rounds(rounds, groups=2, send=0.0, **more):
    """Return even stages, one per group in each round."""
    return [
        PlanStage(index, index + 1, (index % groups,), 1.0, 2.0, send, 0.0, 0.0, **more)
        for index in range(rounds * groups)
    ]


def test_interleaved_step_matches_a_hand_calculation():
    simulated = simulate(build_plan(build_rounds(2), 4, "interleaved"))
    assert [format_passes(simulated, index) for index in range(4)] == [
        "F0@0 F1@1 F2@4 F3@8 B0@12 B1@15 B2@23 B3@25",
        "F0@1 F1@2 F2@9 B0@10 F3@12 B1@13 B2@21 B3@23",
        "F0@2 F1@3 B0@6 B1@9 F2@11 F3@14 B2@18 B3@21",
        "F0@3 B0@4 F1@6 B1@7 F2@15 B2@16 F3@18 B3@19",
    ]
    assert simulated.step_s == 27
    assert simulated.bubble == pytest.approx(1 / 9)


def test_rounds_reduce_the_idle_time_of_groups():
    """With S groups, each waits for S - 1 passes of one stage, in both directions."""
    steps = [
        simulate(build_plan(build_rounds(rounds, 3), 6, "interleaved")).step_s
        for rounds in (2, 3, 4)
    ]
    assert steps == [6 * 3 * rounds + 2 * 3 for rounds in (2, 3, 4)]


def test_messages_of_a_group_do_not_overlap():
    simulated = simulate(build_plan(build_rounds(2, send=3.0), 2, "interleaved"))
    sends = sorted(
        (span.start_s, span.end_s)
        for span in simulated.spans
        if (span.stage % 2, span.kind) in {(0, "send")} or (span.stage, span.kind) == (2, "return")
    )
    assert all(a[1] <= b[0] for a, b in pairwise(sends))
    assert len(sends) == 3 * 2


def test_interleaved_memory_sums_the_stages_of_a_device():
    stages = build_rounds(2, fixed_bytes=100.0, bytes_per_micro_batch=10.0, working_bytes=1.0)
    simulated = simulate(build_plan(stages, 4, "interleaved"))
    assert list_in_flight_combinations(0, 2, 2, 4) == ((3, 2), (4, 1))
    assert simulated.peak_bytes == (251, 231, 251, 231)
    assert simulated.kept_bytes == (50, 30, 50, 30)


def test_stages_of_the_same_devices_share_a_row():
    plan = build_plan(build_rounds(4), 4, "interleaved")
    figures = Verification(
        TimeComparison(9.0, 10.0), (TimeComparison(4.0, 5.0), TimeComparison(3.0, 2.0)), 0, {}
    )
    rows = format_verification_cells(plan, figures)
    assert [row[0] for row in rows] == ["0,2,4,6", "1,3,5,7", "step"]
    assert rows[0] == ("0,2,4,6", "s0, s2, s4, s6", "4.00 ms", "5.00 ms", "-20.0 %")


@pytest.mark.parametrize(
    ("plan", "schedule", "message"),
    [
        (build_plan(build_even_stages(2), 2), "interleaved", "nothing to interleave"),
        (build_plan(build_rounds(2), 2, "interleaved"), "1f1b", "each device has 2 stages"),
        (
            build_plan(build_rounds(2), 3, "interleaved"),
            None,
            "3 micro-batches cannot be interleaved",
        ),
    ],
)
def test_rejects_stages_that_do_not_fit_the_schedule(plan, schedule, message):
    with pytest.raises(PlannerError, match=message):
        simulate(plan, schedule=schedule)


@st.composite
def interleaved_problems(draw):
    """Draw groups, rounds, micro-batches, and stages with times in whole seconds."""
    groups = draw(st.integers(2, 4))
    rounds = draw(st.integers(2, 3))
    count = groups * draw(st.integers(1, 3))
    stages = [
        PlanStage(
            index,
            index + 1,
            (index % groups,),
            float(draw(st.integers(1, 9))),
            float(draw(st.integers(1, 9))),
            draw(whole_seconds) if index + 1 < groups * rounds else 0.0,
            draw(st.sampled_from([0.0, 5.0, 40.0])),
            0.0,
        )
        for index in range(groups * rounds)
    ]
    return groups, rounds, count, stages


@given(interleaved_problems())
def test_interleaved_step_matches_fixed_point_iteration(problem):
    groups, rounds, count, stages = problem
    times = [
        (stage_times.forward_s, stage_times.backward_s, stage_times.all_reduce_s)
        for stage_times in stages
    ]
    timetable = compute_timetable(stages, "interleaved", count, rounds)
    assert timetable.end_s == compute_interleaved_step(
        times, [stage_times.send_s for stage_times in stages], groups, count
    )
    assert estimate_step(stages, "interleaved", count, rounds) <= timetable.end_s
    for group in range(groups):
        sequence = list_interleaved_tasks(group, groups, rounds, range(count))
        tasks = [(task.kind[0].upper(), task.stage, task.micro_batch) for task in sequence]
        assert tasks == build_rounds_order(group, groups, rounds, count)


@given(interleaved_problems(), st.floats(0.0, 2.0))
def test_interleaved_step_is_infinite_above_the_limit(problem, share):
    _, rounds, count, stages = problem
    end = compute_timetable(stages, "interleaved", count, rounds).end_s
    step_end = compute_step_end(stages, "interleaved", count, rounds, limit=share * end)
    assert step_end == end if share >= 1.0 else step_end in (end, math.inf)


def test_other_schedules_reject_several_rounds(messages):
    with messages.raises(ValueError):
        compute_timetable([stage(index, 1.0, 2.0) for index in range(4)], "1f1b", 8, rounds=2)


def test_limit_below_the_passes_cuts_the_step_off():
    stages = [stage(index, 1.0, 2.0) for index in range(4)]
    assert (
        compute_step_end(stages, "interleaved", 8, 2)
        == compute_timetable(stages, "interleaved", 8, 2).end_s
    )
    assert compute_step_end(stages, "interleaved", 8, 2, limit=2 * 8 * 3.0 - 1.0) == math.inf


@st.composite
def pipelines(draw, most_stages=5):
    """Draw stages with times in whole seconds, so that sums are exact."""
    count = draw(st.integers(1, most_stages))
    return [
        stage(
            index,
            float(draw(st.integers(1, 9))),
            float(draw(st.integers(1, 9))),
            draw(whole_seconds) if index + 1 < count else 0.0,
            draw(st.sampled_from([0.0, 5.0, 40.0])),
            data_share=draw(st.sampled_from([0.5, 0.25, 0.75, 1.0])),
        )
        for index in range(count)
    ]


counts = st.integers(1, 12)


@given(pipelines(), counts, st.sampled_from(STAGE_SCHEDULES))
def test_simulation_matches_fixed_point_iteration(stages, count, schedule):
    times = [
        (stage_times.forward_s, stage_times.backward_s, stage_times.all_reduce_s)
        for stage_times in stages
    ]
    flight = [count_in_flight(schedule, index, len(stages), count) for index in range(len(stages))]
    orders = [build_order(in_flight, count) for in_flight in flight]
    if schedule == ZERO_BUBBLE:
        orders = [build_split_order(index, len(stages), count) for index in range(len(stages))]
        for index, expected in enumerate(orders):
            tasks = list_stage_tasks(schedule, index, len(stages), range(count))
            letters = {"forward": "F", "data": "B", "weights": "W"}
            assert [(letters[task.kind], task.micro_batch) for task in tasks] == expected
    sends = [stage_times.send_s for stage_times in stages]
    shares = [(stage_times.backward_s, stage_times.data_share) for stage_times in stages]
    parts = [(backward * share, backward * (1.0 - share)) for backward, share in shares]
    assert compute_timetable(stages, schedule, count).end_s == compute_step(
        times, sends, orders, count, parts
    )


@given(pipelines(), counts)
def test_closed_form_of_gpipe_is_exact(stages, count):
    assert estimate_step(stages, "gpipe", count) == compute_timetable(stages, "gpipe", count).end_s


@given(pipelines(), counts, st.sampled_from(STAGE_SCHEDULES))
def test_closed_form_is_a_lower_bound(stages, count, schedule):
    assert (
        estimate_step(stages, schedule, count) <= compute_timetable(stages, schedule, count).end_s
    )


@given(
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 9),
    st.lists(whole_seconds, min_size=6, max_size=6),
    counts,
    st.sampled_from(WHOLE_BACKWARD),
)
def test_closed_form_of_even_stages_is_exact(stages, forward, backward, reduces, count, schedule):
    row = [
        stage(index, float(forward), float(backward), 0.0, reduces[index])
        for index in range(stages)
    ]
    assert estimate_step(row, schedule, count) == compute_timetable(row, schedule, count).end_s


@given(pipelines(2), counts, st.sampled_from(STAGE_SCHEDULES))
def test_spans_are_ordered_and_do_not_overlap(stages, count, schedule):
    simulated = simulate(build_plan(stages, count, schedule))
    for index, stage_times in enumerate(stages):
        stage_spans = [span for span in simulated.spans if span.stage == index]
        for kinds in ({"forward", "backward", "weights"}, {"send"}, {"return"}):
            row = [span for span in stage_spans if span.kind in kinds]
            assert all(a.end_s <= b.start_s for a, b in pairwise(row))
        forward = {span.micro_batch: span for span in stage_spans if span.kind == "forward"}
        backward = {span.micro_batch: span for span in stage_spans if span.kind == "backward"}
        assert set(forward) == set(backward) == set(range(count))
        assert all(forward[k].end_s <= backward[k].start_s for k in range(count))
        rows = [(forward, stage_times.forward_s), (backward, stage_times.backward_s)]
        if schedule == ZERO_BUBBLE:
            weights = {span.micro_batch: span for span in stage_spans if span.kind == "weights"}
            assert all(backward[k].end_s <= weights[k].start_s for k in range(count))
            data_s = stage_times.backward_s * stage_times.data_share
            rows = [rows[0], (backward, data_s), (weights, stage_times.backward_s - data_s)]
        assert all(
            span.end_s - span.start_s == seconds for row, seconds in rows for span in row.values()
        )
    assert simulated.in_flight == tuple(
        count_in_flight(schedule, index, len(stages), count) for index in range(len(stages))
    )


def test_renders_the_timeline_as_text(messages):
    plan = build_plan(build_even_stages(2, reduce=2.0), 3)
    messages.check(render_timeline_text(simulate(plan), 36))
    assert all(len(line) == 80 for line in render_timeline_text(simulate(plan), 80))
    assert all(len(line) == 20 for line in render_timeline_text(simulate(plan), 1))


def test_renders_the_timeline_as_svg(messages):
    plan = build_plan([stage(0, 1.0, 2.0, 0.5, 1.0), stage(1, 1.0, 2.0)], 3)
    simulated = simulate(plan)
    root = ElementTree.fromstring(render_timeline_svg(plan, simulated, 800))
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in root.iter(f"{space}rect") if rect.find(f"{space}title") is not None]
    assert len(bars) == len(simulated.spans)
    assert all(0 <= float(bar.get("x")) <= 800 for bar in bars)
    messages.check(root.find(f"{space}title").text)


def test_builds_a_trace_of_the_timeline():
    plan = build_plan([stage(0, 1.0, 2.0, 0.5, 1.0), stage(1, 1.0, 2.0)], 3)
    simulated = simulate(plan)
    trace = json.loads(json.dumps(build_trace(plan, simulated)))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(simulated.spans)
    assert max(event["ts"] + event["dur"] for event in events) == simulated.step_s * 1e6
    assert {event["pid"] for event in events} == {0, 1}
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert "stage 0: s0, on 1 device" in names


def test_times_of_the_busiest_rank_add_up_to_the_step():
    def build_samples(name, *by_rank):
        return [rank_event("samples", rank, metric=name, values=[ms]) for rank, ms in by_rank]

    phases = [
        describe_metric(name, "ms", part_of="time_ms") for name in ("forward_ms", "bubble_ms")
    ]
    events = [
        *make_started_run(describe_case(metrics=[TIME, *phases])),
        *build_samples("time_ms", (0, 9.0), (1, 10.0)),
        *build_samples("forward_ms", (0, 4.0), (1, 7.0)),
        *build_samples("bubble_ms", (0, 5.0), (1, 2.0)),
        case_judged(),
    ]
    case = build_state(events).cases["a"]
    for rank, part in case.measured.ranks.items():
        part.coordinates = {"stage": rank}
    plan = build_plan(build_even_stages(2), 2)
    figures = compare_with_run(plan, case)
    assert figures.rank == 1
    assert figures.noise is None
    assert describe_run_noise(figures) == ""
    case.disturbances = None  # those without the wait
    case.measured.ranks[1].disturbances["waited"] = 0.44
    disturbed = compare_with_run(plan, case)
    assert "waited 44 % of its time for a core" in describe_run_noise(disturbed)
    errors = [row[-1] for row in format_verification_cells(plan, disturbed)]
    assert all(error.startswith("≈ ") for error in errors)
    assert figures.parts_ms == pytest.approx(
        {
            "passes and messages": 7.0,
            "allreduce": 0.0,
            "optimizer": 0.0,
            "bubble": 2.0,
            "other": 1.0,
        }
    )
    parts = compare_step_parts(plan, figures)
    assert figures.group == 1
    assert sum(part.measured_ms for part in parts.values()) == pytest.approx(10.0)
    assert sum(part.predicted_ms for part in parts.values()) == pytest.approx(1000 * plan.step_s)
    assert [part.measured_ms for part in parts.values()] == pytest.approx([7.0, 0.0, 3.0])
    rest_text = "The measured rest: waiting for other ranks 2.00 ms, other 1.00 ms."
    assert f"rank 1, which has the most work. {rest_text}" in describe_step_rest(plan, figures)


def test_rounding_errors_are_no_part_of_a_step():
    plan = build_plan(build_even_stages(1), 1)
    step_ms = 1000 * plan.step_s
    passes = TimeComparison(step_ms * (1 - 1e-15), 7.0)
    verification = Verification(TimeComparison(step_ms, 9.0), (passes,), 0, {})
    assert compare_step_parts(plan, verification)["rest"].predicted_ms == 0.0
