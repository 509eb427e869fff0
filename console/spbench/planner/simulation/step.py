"""An event simulator of plans: every forward and backward pass, message and all-reduce.

A device runs one pass at a time, in the order of the schedule. A link carries one micro-batch at
a time each way, beside the passes. A device sums its gradients after its last backward pass. So
each event starts when the last of those that it waits for ends, and nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spbench.planner.errors import PlannerError
from spbench.planner.plans import Plan
from spbench.planner.simulation.memory import peak_held_bytes
from spbench_core.schedule.orders import INTERLEAVED, Schedule, can_interleave
from spbench_core.schedule.timetable import Timetable, compute_timetable

Kind = Literal["forward", "backward", "weights", "send", "return", "all-reduce"]
"""``send`` takes a micro-batch's output to the next stage, ``return`` its gradient back;
``weights`` are the gradients of weights where ``backward`` computes those of data alone."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A span of the timeline: one pass, message or all-reduce of one stage.

    Attributes:
        stage: By index; of ``send`` and ``return`` the one that sends.
        micro_batch: By index; None for an all-reduce.
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
    """One step of a plan, event by event.

    Attributes:
        schedule: The order of the passes.
        step_s: Seconds of the step.
        bubble: Share of the stages' time until the last pass ends in which they run none.
        kept_bytes: What micro-batches in flight take at most on each device of each stage, for
            all stages that it has.
        peak_bytes: Peak memory of each device of each stage, for all stages that it has.
        in_flight: Micro-batches that each stage held at most.
        spans: By stage and start.
    """

    schedule: Schedule
    step_s: float
    bubble: float
    kept_bytes: tuple[float, ...]
    peak_bytes: tuple[float, ...]
    in_flight: tuple[int, ...]
    spans: tuple[StepSpan, ...]


def simulate(plan: Plan, *, schedule: Schedule | None = None) -> Simulation:
    """Return one step of a plan, event by event.

    Args:
        plan: The plan.
        schedule: The order of the passes; the plan's own where it is None.

    Raises:
        PlannerError: The plan's stages are not those of the schedule.
    """
    used = plan.schedule if schedule is None else schedule
    table = _timetable(plan, used)
    kept = {at: _kept(plan, table, together) for together in plan.stage_groups for at in together}
    stages = range(len(plan.stages))
    return Simulation(
        schedule=used,
        step_s=table.end_s,
        bubble=_bubble(plan, table),
        kept_bytes=tuple(kept[at] for at in stages),
        peak_bytes=tuple(_peak(plan, kept, at) for at in stages),
        in_flight=tuple(max(_flights(table, [at]))[0] for at in stages),
        spans=tuple(_spans(plan, table)),
    )


def _timetable(plan: Plan, schedule: Schedule) -> Timetable:
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


def _kept(plan: Plan, table: Timetable, together: Sequence[int]) -> float:
    """Return what the micro-batches in flight take at most on a device that has these stages."""
    return peak_held_bytes(
        [plan.stages[at].held_bytes for at in together], _flights(table, together)
    )


def _peak(plan: Plan, kept: Mapping[int, float], at: int) -> float:
    stages = [each for each in plan.stages if each.devices == plan.stages[at].devices]
    fixed = sum(each.fixed_bytes for each in stages)
    return fixed + kept[at] + max(each.once_bytes for each in stages)


def _flights(table: Timetable, stages: Sequence[int]) -> list[tuple[int, ...]]:
    """Return how many micro-batches stages hold, from forward until backward, after each change.

    What goes at a time goes before what comes.
    """
    begun = [(start, 1, each) for each, at in enumerate(stages) for start in table.forward[at]]
    gone = [(end, -1, each) for each, at in enumerate(stages) for end in table.released[at]]
    held = [0] * len(stages)
    found = []
    for _, change, each in sorted(begun + gone):
        held[each] += change
        found.append(tuple(held))
    return found


def _bubble(plan: Plan, table: Timetable) -> float:
    ends = max(ends[-1] for ends in table.released)
    devices = sum(plan.stages[at].replicas for at, *_ in plan.stage_groups)
    busy = sum(stage.replicas * (stage.forward_s + stage.backward_s) for stage in plan.stages)
    return 1.0 - busy * plan.micro_batches / (devices * ends) if ends else 0.0


def _spans(plan: Plan, table: Timetable) -> Iterator[StepSpan]:
    for at, stage in enumerate(plan.stages):
        found = [*_passes(at, stage.forward_s, table.forward[at], "forward")]
        data_s = stage.backward_s * (1.0 if table.weights_end is None else stage.data_share)
        found += _ended(at, data_s, table.backward_end[at], "backward")
        if table.weights_end is not None:
            found += _ended(at, stage.backward_s - data_s, table.weights_end[at], "weights")
        if at + 1 < len(plan.stages) and stage.send_s:
            found += _passes(at, stage.send_s, table.send[at], "send")
        if at and plan.stages[at - 1].send_s:
            found += _passes(at, plan.stages[at - 1].send_s, table.back[at], "return")
        if stage.all_reduce_s:
            start = table.reduce[at]
            found.append(StepSpan("all-reduce", at, None, start, start + stage.all_reduce_s))
        yield from sorted(found, key=lambda span: (span.start_s, span.end_s))


def _passes(stage: int, seconds: float, starts: list[float], kind: Kind) -> Iterator[StepSpan]:
    return (StepSpan(kind, stage, k, start, start + seconds) for k, start in enumerate(starts))


def _ended(stage: int, seconds: float, ends: list[float], kind: Kind) -> Iterator[StepSpan]:
    return (StepSpan(kind, stage, k, end - seconds, end) for k, end in enumerate(ends))
