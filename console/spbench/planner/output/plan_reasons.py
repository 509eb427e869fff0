"""The reasons for a plan: its times next to those of other ways, and its limits."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.planner.hpgo.baselines import DP_OVERLAP, DP_PLAIN, GPIPE, STRAIGHT_PIPELINE
from spbench.planner.output.plan_description import format_memory
from spbench.planner.plans import OtherPipeline, Plan
from spbench.planner.simulation.stage_memory import StageMemory
from spbench.planner.simulation.step_shares import StepShares
from spbench.record.number_formatting import format_factor, format_percent
from spbench_core.number_text import format_quantity

DATA_PARALLELISM = "data parallelism"
_WAYS = {
    DP_OVERLAP: DATA_PARALLELISM,
    DP_PLAIN: DATA_PARALLELISM,
    STRAIGHT_PIPELINE: "a straight pipeline",
    GPIPE: "GPipe",
}
"""The other ways that spbench can run, in the words of the reasons."""
_COMPUTATION = "computation"
_WAITING = "waiting for other stages"
_SINGULAR_PARTS = (_COMPUTATION, _WAITING)
_SAME_SHARE = 0.005
"""Steps that differ by less than this share take equally long."""
_NEARLY_FULL = 0.9
"""Share of a device's memory from which it limits a plan."""


def explain_choice(
    plan: Plan, shares: StepShares, memories: Sequence[StageMemory]
) -> tuple[str, ...]:
    """Return the comparison of a plan with other ways, its limit, and its memory."""
    return (
        _compare_with_others(plan),
        _describe_limit(plan, shares),
        _describe_memory(memories),
    )


def _compare_with_others(plan: Plan) -> str:
    plan_name = _name_way(plan)
    step_s_by_way: dict[str, float] = {}
    for baseline in plan.baselines:
        name = _WAYS.get(baseline.name)
        if name is not None and baseline.step_s is not None and name != plan_name.lower():
            step_s_by_way[name] = min(baseline.step_s, step_s_by_way.get(name, baseline.step_s))
    shortest_s = min(step_s_by_way.values(), default=plan.step_s)
    is_fastest = plan.searched_count > 0 or (
        bool(step_s_by_way) and shortest_s >= (1.0 - _SAME_SHARE) * plan.step_s
    )
    claim = "is the fastest way" if is_fastest else "is the plan of this mode"
    if plan.searched_count:
        claim = f"is the fastest of {format_quantity(plan.searched_count, 'plan')} searched"
    other = plan.other_pipeline
    longest_s = max(
        [*step_s_by_way.values(), *([other.step_s] if other is not None else [])], default=0.0
    )
    # All have the same unit: factors if a step takes more than twice as long.
    as_factor = longest_s > 2 * plan.step_s
    comparisons = [
        f"{name} {_compare_steps(step_s, plan.step_s, as_factor)}"
        for name, step_s in step_s_by_way.items()
    ]
    if other is not None:
        article = "the best other" if len(plan.stages) > 1 else "the best"
        comparisons.append(
            f"{article} pipeline ({_describe_shape(other)})"
            f" {_compare_steps(other.step_s, plan.step_s, as_factor)}"
        )
    return f"{plan_name} {claim}{': ' if comparisons else ''}{', '.join(comparisons)}."


def _describe_shape(pipeline: OtherPipeline) -> str:
    """Return the stages and replicas of a pipeline: ``2 stages x 4 replicas``."""
    shape = format_quantity(pipeline.stage_count, "stage")
    counts = pipeline.device_counts
    if len({*counts}) > 1:
        shape += f" of {min(counts)} to {max(counts)} devices"
    elif counts[0] > 1:
        shape += f" x {counts[0]} replicas"
    rounds = pipeline.stage_count // len(counts)
    return f"{shape}, {rounds} stages on each device" if rounds > 1 else shape


def _name_way(plan: Plan) -> str:
    """Return the kind of a plan, with a capital."""
    if len(plan.stages) > 1:
        return f"This pipeline of {len(plan.stages)} stages"
    if plan.stages[0].device_count == 1:
        return "A single device"
    return f"{DATA_PARALLELISM[0].upper()}{DATA_PARALLELISM[1:]}"


def _compare_steps(other_s: float, plan_s: float, as_factor: bool) -> str:
    """Return how long another step takes: ``takes 22 % longer``, or ``1.22x as long``."""
    share = other_s / plan_s - 1.0
    if abs(share) < _SAME_SHARE:
        return "takes as long"
    if as_factor:
        return f"takes {format_factor(other_s / plan_s)} as long"
    return f"takes {format_percent(abs(share))} {'longer' if share > 0 else 'less'}"


def _describe_limit(plan: Plan, shares: StepShares) -> str:
    """Return the part of a step that takes longest, and the other parts that matter."""
    share_by_part = {
        _COMPUTATION: shares.computing,
        "transfers between stages": shares.transfers,
        "all-reduces of gradients": shares.all_reduce,
        _WAITING: shares.waiting,
    }
    ordered = sorted(share_by_part.items(), key=lambda item: -item[1])
    (limit, limit_share), *others = ordered
    owner = f" on the devices of stage {shares.stage}" if len(plan.stages) > 1 else ""
    verb = "limits" if limit in _SINGULAR_PARTS else "limit"
    details = "".join(
        f", {format_percent(share)} {part}" for part, share in others if share >= _SAME_SHARE
    )
    return (
        f"{limit[0].upper()}{limit[1:]} {verb} it: {format_percent(limit_share)} of the"
        f" step{owner}{details}."
    )


def _describe_memory(memories: Sequence[StageMemory]) -> str:
    """Return whether memory limits the plan, and that of the fullest device."""
    fullest = max(memories, key=_compute_fill)
    used_text = format_memory(fullest.peak_bytes)
    if fullest.capacity_bytes is None:
        return f"A device needs up to {used_text} of memory; the memory of the devices is unknown."
    fill = _compute_fill(fullest)
    limits = "Memory limits it, too" if fill >= _NEARLY_FULL else "Memory does not limit it"
    capacity_text = format_memory(fullest.capacity_bytes)
    return f"{limits}: up to {used_text} of {capacity_text} is used, {format_percent(fill)}."


def _compute_fill(memory: StageMemory) -> float:
    """Return the used share of a device's memory, or the bytes if unknown."""
    return memory.peak_bytes / (memory.capacity_bytes or 1.0)
