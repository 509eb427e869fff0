"""An event simulator of plans: every forward and backward pass, message and all-reduce.

A device runs one pass at a time, in the order of the schedule. A link carries one micro-batch at
a time each way, beside the passes. A stage sums its gradients after its last backward pass. So
each event starts when the last of those that it waits for ends, and nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spbench.planner.plans import Plan, Schedule
from spbench.planner.timetable import Timetable, stage_schedule, timetable

Kind = Literal["forward", "backward", "send", "return", "all-reduce"]
"""``send`` takes a micro-batch's output to the next stage, ``return`` its gradient back."""


@dataclass(frozen=True, slots=True)
class Span:
    """What one stage does from one time to another.

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
        peak_bytes: Peak memory of each device of each stage.
        in_flight: Micro-batches that each stage held at most.
        spans: By stage and start.
    """

    schedule: Schedule
    step_s: float
    bubble: float
    peak_bytes: tuple[float, ...]
    in_flight: tuple[int, ...]
    spans: tuple[Span, ...]


def simulate(plan: Plan, *, schedule: Schedule | None = None) -> Simulation:
    """Return one step of a plan, event by event.

    Args:
        plan: The plan.
        schedule: The order of the passes; the plan's own where it is None.

    Raises:
        PlannerError: The schedule is ``interleaved``, for which no plan has stages.
    """
    used = stage_schedule(plan.schedule if schedule is None else schedule)
    table = timetable(plan.stages, used, plan.micro_batches)
    flights = tuple(_most_in_flight(table, at) for at in range(len(plan.stages)))
    return Simulation(
        schedule=used,
        step_s=table.end_s,
        bubble=_bubble(plan, table),
        peak_bytes=tuple(
            stage.fixed_bytes + stage.once_bytes + kept * stage.held_bytes
            for stage, kept in zip(plan.stages, flights, strict=True)
        ),
        in_flight=flights,
        spans=tuple(_spans(plan, table)),
    )


def _most_in_flight(table: Timetable, stage: int) -> int:
    """Return how many micro-batches a stage holds at most, from forward until backward."""
    begun = [(start, 1) for start in table.forward[stage]]
    gone = [(end, -1) for end in table.backward_end[stage]]
    held = most = 0
    for _, change in sorted(begun + gone):  # what goes at a time goes before what comes
        held += change
        most = max(most, held)
    return most


def _bubble(plan: Plan, table: Timetable) -> float:
    ends = max(ends[-1] for ends in table.backward_end)
    devices = sum(stage.replicas for stage in plan.stages)
    busy = sum(stage.replicas * (stage.forward_s + stage.backward_s) for stage in plan.stages)
    return 1.0 - busy * plan.micro_batches / (devices * ends) if ends else 0.0


def _spans(plan: Plan, table: Timetable) -> Iterator[Span]:
    for at, stage in enumerate(plan.stages):
        found = [*_passes(at, stage.forward_s, table.forward[at], "forward")]
        found += [
            Span("backward", at, k, end - stage.backward_s, end)
            for k, end in enumerate(table.backward_end[at])
        ]
        if at + 1 < len(plan.stages) and stage.send_s:
            found += _passes(at, stage.send_s, table.send[at], "send")
        if at and plan.stages[at - 1].send_s:
            found += _passes(at, plan.stages[at - 1].send_s, table.back[at], "return")
        if stage.all_reduce_s:
            start = table.backward_end[at][-1] - stage.overlapped_s
            found.append(Span("all-reduce", at, None, start, start + stage.all_reduce_s))
        yield from sorted(found, key=lambda span: (span.start_s, span.end_s))


def _passes(stage: int, seconds: float, starts: list[float], kind: Kind) -> Iterator[Span]:
    return (Span(kind, stage, k, start, start + seconds) for k, start in enumerate(starts))
