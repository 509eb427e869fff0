"""An event simulator of plans: passes, messages and all-reduces.

A device runs one pass at a time, in the order of the schedule. A link carries one micro-batch at
a time in each direction, during the passes. A device sums its gradients after its last backward
pass. Each event starts when the last event that it waits for ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spbench.planner.errors import PlannerError
from spbench.planner.plans import Plan
from spbench.planner.simulation.memory import compute_peak_kept_bytes
from spbench_core.schedule.orders import INTERLEAVED, Schedule, can_interleave
from spbench_core.schedule.timetable import Timetable, compute_timetable

Kind = Literal["forward", "backward", "weights", "send", "return", "all-reduce"]
"""``send`` takes a micro-batch's output to the next stage, ``return`` its gradient back;
``weights`` are the weight gradients if ``backward`` only computes data gradients."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A span of the timeline: one pass, message or all-reduce of one stage.

    Attributes:
        stage: Index of the stage; for ``send`` and ``return`` that of the sender.
        micro_batch: Index of the micro-batch; None for an all-reduce.
        start_s: Seconds after the start of the step.
        end_s: Seconds after the start of the step.
    """

    kind: Kind
    stage: int
    micro_batch: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """One simulated step of a plan.

    Attributes:
        schedule: The order of the passes.
        step_s: Seconds of the step.
        bubble: Share of the devices' time without a pass, until the last pass ends.
        kept_bytes: Peak bytes of micro-batches in flight on each device of each stage, for
            all stages of the device.
        peak_bytes: Peak memory of each device of each stage, for all stages of the device.
        in_flight: The most micro-batches in flight of each stage.
        spans: All spans, sorted by stage and start.
    """

    schedule: Schedule
    step_s: float
    bubble: float
    kept_bytes: tuple[float, ...]
    peak_bytes: tuple[float, ...]
    in_flight: tuple[int, ...]
    spans: tuple[StepSpan, ...]


def simulate(plan: Plan, *, schedule: Schedule | None = None) -> Simulation:
    """Simulate one step of a plan.

    Args:
        plan: The plan.
        schedule: The order of the passes; None for that of the plan.

    Raises:
        PlannerError: The schedule cannot run the plan's stages.
    """
    used_schedule = plan.schedule if schedule is None else schedule
    timetable = _build_timetable(plan, used_schedule)
    kept_bytes_by_stage = {
        stage: _compute_kept_bytes(plan, timetable, group)
        for group in plan.stage_groups
        for stage in group
    }
    stages = range(len(plan.stages))
    return Simulation(
        schedule=used_schedule,
        step_s=timetable.end_s,
        bubble=_compute_bubble(plan, timetable),
        kept_bytes=tuple(kept_bytes_by_stage[stage] for stage in stages),
        peak_bytes=tuple(_compute_peak_bytes(plan, kept_bytes_by_stage, stage) for stage in stages),
        in_flight=tuple(max(_count_in_flight(timetable, [stage]))[0] for stage in stages),
        spans=tuple(_generate_spans(plan, timetable)),
    )


def _build_timetable(plan: Plan, schedule: Schedule) -> Timetable:
    if schedule != INTERLEAVED:
        if plan.rounds > 1:
            raise PlannerError(
                f"each device has {plan.rounds} stages, whose schedule is interleaved,"
                f" not {schedule}"
            )
        return compute_timetable(plan.stages, schedule, plan.micro_batches)
    groups = len(plan.stage_groups)
    if plan.rounds == 1:
        raise PlannerError("the plan has one stage a device: there is nothing to interleave")
    if not can_interleave(plan.micro_batches, groups):
        raise PlannerError(
            f"{plan.micro_batches} micro-batches cannot be interleaved over {groups} groups of"
            " devices; it takes a multiple of them"
        )
    return compute_timetable(plan.stages, schedule, plan.micro_batches, plan.rounds)


def _compute_kept_bytes(plan: Plan, timetable: Timetable, group: Sequence[int]) -> float:
    """Return the peak bytes of micro-batches in flight on a device with these stages."""
    return compute_peak_kept_bytes(
        [plan.stages[index].bytes_per_micro_batch for index in group],
        _count_in_flight(timetable, group),
    )


def _compute_peak_bytes(plan: Plan, kept_bytes_by_stage: Mapping[int, float], stage: int) -> float:
    stages = [other for other in plan.stages if other.devices == plan.stages[stage].devices]
    fixed_bytes = sum(other.fixed_bytes for other in stages)
    return fixed_bytes + kept_bytes_by_stage[stage] + max(other.working_bytes for other in stages)


def _count_in_flight(timetable: Timetable, stages: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the micro-batches in flight of each stage after each change.

    At equal times, micro-batches leave before others enter.
    """
    start_changes = [
        (start, 1, position)
        for position, stage in enumerate(stages)
        for start in timetable.forward_starts[stage]
    ]
    end_changes = [
        (end, -1, position)
        for position, stage in enumerate(stages)
        for end in timetable.release_times[stage]
    ]
    in_flight = [0] * len(stages)
    counts_after_changes = []
    for _, change, position in sorted(start_changes + end_changes):
        in_flight[position] += change
        counts_after_changes.append(tuple(in_flight))
    return counts_after_changes


def _compute_bubble(plan: Plan, timetable: Timetable) -> float:
    end_s = max(end_s[-1] for end_s in timetable.release_times)
    devices = sum(plan.stages[stage].device_count for stage, *_ in plan.stage_groups)
    busy_s = sum(stage.device_count * (stage.forward_s + stage.backward_s) for stage in plan.stages)
    return 1.0 - busy_s * plan.micro_batches / (devices * end_s) if end_s else 0.0


def _generate_spans(plan: Plan, timetable: Timetable) -> Iterator[StepSpan]:
    for index, stage in enumerate(plan.stages):
        spans = [
            *_make_spans_by_start(
                index, stage.forward_s, timetable.forward_starts[index], "forward"
            )
        ]
        data_s = stage.backward_s * (1.0 if timetable.weights_ends is None else stage.data_share)
        spans += _make_spans_by_end(index, data_s, timetable.backward_ends[index], "backward")
        if timetable.weights_ends is not None:
            spans += _make_spans_by_end(
                index, stage.backward_s - data_s, timetable.weights_ends[index], "weights"
            )
        if index + 1 < len(plan.stages) and stage.send_s:
            spans += _make_spans_by_start(index, stage.send_s, timetable.send_starts[index], "send")
        if index and plan.stages[index - 1].send_s:
            spans += _make_spans_by_start(
                index,
                plan.stages[index - 1].send_s,
                timetable.gradient_send_starts[index],
                "return",
            )
        if stage.all_reduce_s:
            start_s = timetable.all_reduce_starts[index]
            spans.append(StepSpan("all-reduce", index, None, start_s, start_s + stage.all_reduce_s))
        yield from sorted(spans, key=lambda span: (span.start_s, span.end_s))


def _make_spans_by_start(
    stage: int, seconds: float, starts: list[float], kind: Kind
) -> Iterator[StepSpan]:
    return (StepSpan(kind, stage, k, start, start + seconds) for k, start in enumerate(starts))


def _make_spans_by_end(
    stage: int, seconds: float, ends: list[float], kind: Kind
) -> Iterator[StepSpan]:
    return (StepSpan(kind, stage, k, end - seconds, end) for k, end in enumerate(ends))
