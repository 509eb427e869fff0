"""Predicted beside measured: a plan's figures, and those of the run that it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spbench.planner.errors import PlannerError
from spbench.planner.plans import Plan
from spbench.record.case_state import CaseState
from spbench.record.metric_names import metric_name
from spbench.record.shares import shares_of
from spbench.stats.summary import median
from spbench_core.events.statuses import CaseStatus

_WORK = ("forward_ms", "backward_ms", "join_ms")
_ELSEWHERE = ("allreduce_ms", "optimizer_ms", "bubble_ms")


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """One time as it was predicted and as it was measured, in milliseconds."""

    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Relative error of the prediction: how much too long it is, over what was measured."""
        return (self.predicted_ms - self.measured_ms) / self.measured_ms


@dataclass(frozen=True, slots=True)
class Verification:
    """A plan that was run; all figures are medians over steps.

    Attributes:
        step: A step.
        stages: Passes and messages of all micro-batches of a step, by group of devices, as
            `Plan.together` has them: of all stages that each has.
        rank: The rank with the longest passes and messages.
        spent: The parts of its step in milliseconds; ``other`` is the remainder.
    """

    step: TimeComparison
    stages: tuple[TimeComparison, ...]
    rank: int
    spent: Mapping[str, float]


def compare_with_run(plan: Plan, case: CaseState) -> Verification:
    """Return a plan's figures beside those of the case that ran it.

    Raises:
        PlannerError: The case measured no step.
    """
    step = case.summary("time_ms")
    if step is None or case.status != CaseStatus.PASSED:
        why = case.verdict.reason or case.status
        raise PlannerError(f"the plan's run came to no result: {why}")
    parts = case.measured.ranks
    work = {rank: sum(_median(case, name, rank) for name in _WORK) for rank in parts}
    stages = []
    for first, *others in plan.stage_groups:
        ranks = [rank for rank, part in parts.items() if part.place.get("stage") == first]
        if not ranks:
            raise PlannerError(f"the run has no rank of stage {first}: it is not one of the plan")
        passes = sum(
            plan.stages[at].forward_s + plan.stages[at].backward_s for at in (first, *others)
        )
        seconds = plan.micro_batches * passes
        stages.append(
            TimeComparison(1000.0 * seconds, sum(work[rank] for rank in ranks) / len(ranks))
        )
    busiest = max(work, key=work.__getitem__)
    spent = _spent(case, busiest, step.p50)
    return Verification(
        TimeComparison(1000.0 * plan.step_s, step.p50), tuple(stages), busiest, spent
    )


def _spent(case: CaseState, rank: int, step_ms: float) -> dict[str, float]:
    """Return the parts of a rank's step: their shares of all steps, times the median step."""
    found = shares_of(case, "time_ms", rank)
    parts = found.parts if found is not None else {}
    shares = {"passes and messages": sum(parts.get(_part(name), 0.0) for name in _WORK)}
    shares |= {_part(name): parts.get(_part(name), 0.0) for name in _ELSEWHERE}
    shares["other"] = max(0.0, 1.0 - sum(shares.values()))
    return {name: share * step_ms for name, share in shares.items()}


def _part(metric: str) -> str:
    """Return the name of a part of the step, as `shares_of` has it."""
    return metric_name(metric, "ms")


def _median(case: CaseState, metric: str, rank: int) -> float:
    repeats = case.measured.samples.get(metric, {}).get(rank, {})
    values = [value for each in repeats.values() for value in each]
    return median(values) if values else 0.0
