"""The parts of a step on the devices with the most work, which limit it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spbench.planner.plans import Plan, PlanStage
from spbench.planner.simulation.step import Simulation, simulate


@dataclass(frozen=True, slots=True)
class StepShares:
    """Shares of a step on the devices of one stage; their sum is 1.

    Attributes:
        stage: A stage of the devices with the most work.
        computing: Passes, without the handling of messages.
        transfers: Handling of messages, and waiting that instant messages would avoid.
        all_reduce: Sums of gradients that do not overlap the backward pass.
        waiting: Waiting for other stages, also with instant messages.
    """

    stage: int
    computing: float
    transfers: float
    all_reduce: float
    waiting: float


def compute_step_shares(plan: Plan, simulation: Simulation) -> StepShares:
    """Return the shares of a simulated step on the devices with the most work."""
    step_s = simulation.step_s
    group = max(plan.stage_groups, key=lambda stages: _compute_work_s(plan, stages))
    stages = [plan.stages[index] for index in group]
    handling_s = 2 * plan.micro_batches * sum(stage.overhead_s for stage in stages)
    computing_s = _compute_work_s(plan, group) - handling_s
    all_reduce_s = sum(max(0.0, stage.all_reduce_s - stage.overlapped_s) for stage in stages)
    delay_s = max(0.0, step_s - _simulate_instant_messages(plan, simulation))
    other_s = max(0.0, step_s - computing_s - handling_s - all_reduce_s)
    waited_for_messages_s = min(delay_s, other_s)
    parts_s = (
        computing_s,
        handling_s + waited_for_messages_s,
        all_reduce_s,
        other_s - waited_for_messages_s,
    )
    # Of interleaved stages all-reduces may overlap each other, so that the sum exceeds the step.
    total_s = sum(parts_s) or 1.0
    return StepShares(group[0], *(part_s / total_s for part_s in parts_s))


def _compute_work_s(plan: Plan, group: tuple[int, ...]) -> float:
    """Return the seconds of all passes of a group of devices in a step."""
    return plan.micro_batches * sum(_compute_pass_s(plan.stages[index]) for index in group)


def _compute_pass_s(stage: PlanStage) -> float:
    return stage.forward_s + stage.backward_s


def _simulate_instant_messages(plan: Plan, simulation: Simulation) -> float:
    """Return the seconds of the step if messages between stages took no time."""
    if all(stage.send_s == 0.0 for stage in plan.stages):
        return simulation.step_s
    stages = tuple(replace(stage, send_s=0.0) for stage in plan.stages)
    return simulate(replace(plan, stages=stages), schedule=simulation.schedule).step_s
