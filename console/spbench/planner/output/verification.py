"""Verification of a plan: its times compared with those of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spbench.planner.errors import PlannerError
from spbench.planner.plans import Plan
from spbench.record.case_state import CaseState
from spbench.record.metric_names import format_metric_name
from spbench.record.noise import describe_case_noise
from spbench.record.shares import compute_shares
from spbench.stats.summary import median
from spbench_core.events.statuses import CaseStatus

_WORK = ("forward_ms", "backward_ms", "join_ms")
_OTHER_PARTS = ("allreduce_ms", "optimizer_ms", "bubble_ms")
_PASSES = "passes and messages"
_ALL_REDUCE = "allreduce"
REST = "rest"
"""The part of a step that is neither passes nor all-reduces."""
_ROUNDING = 1e-9
"""The largest share of the step that is a rounding error instead of a time."""


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """A predicted and a measured time."""

    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Relative error of the prediction: predicted over measured time, minus 1."""
        return (self.predicted_ms - self.measured_ms) / self.measured_ms


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of a plan with a run; all times are medians over steps.

    Attributes:
        step: The time of a step.
        stages: Passes and messages of all micro-batches of a step, by group of devices; see
            `Plan.stage_groups`.
        rank: The rank with the longest passes and messages.
        parts_ms: The parts of that rank's step in milliseconds; ``other`` is the remainder.
        noise: A clause on the worst disturbance of the run; None without any.
        group: The group of devices of that rank, as an index of `stages`.
    """

    step: TimeComparison
    stages: tuple[TimeComparison, ...]
    rank: int
    parts_ms: Mapping[str, float]
    noise: str | None = None
    group: int = 0

    @property
    def rest_ms(self) -> Mapping[str, float]:
        """The parts of the rank's step other than passes, messages and all-reduces."""
        return {
            name: part_ms
            for name, part_ms in self.parts_ms.items()
            if name not in (_PASSES, _ALL_REDUCE)
        }


def compare_step_parts(plan: Plan, verification: Verification) -> dict[str, TimeComparison]:
    """Return the parts of the step of the rank with the most work, which add up to it.

    The rest of the prediction is the time in which the rank waits for other stages. The
    time of an all-reduce during the passes does not count.
    """
    step = verification.step
    stages = [plan.stages[index] for index in plan.stage_groups[verification.group]]
    exposed_s = sum(max(0.0, stage.all_reduce_s - stage.overlapped_s) for stage in stages)
    passes_ms = min(verification.stages[verification.group].predicted_ms, step.predicted_ms)
    all_reduce_ms = min(1000.0 * exposed_s, step.predicted_ms - passes_ms)
    rest_ms = step.predicted_ms - passes_ms - all_reduce_ms
    if rest_ms < _ROUNDING * step.predicted_ms:
        rest_ms = 0.0
    measured_passes_ms = verification.parts_ms.get(_PASSES, 0.0)
    measured_all_reduce_ms = verification.parts_ms.get(_ALL_REDUCE, 0.0)
    return {
        _PASSES: TimeComparison(passes_ms, measured_passes_ms),
        "all-reduce after them": TimeComparison(all_reduce_ms, measured_all_reduce_ms),
        REST: TimeComparison(
            rest_ms,
            max(0.0, step.measured_ms - measured_passes_ms - measured_all_reduce_ms),
        ),
    }


def compare_with_run(plan: Plan, case: CaseState) -> Verification:
    """Return the comparison of a plan with the case that ran it.

    Raises:
        PlannerError: The case did not measure a step.
    """
    step = case.summary("time_ms")
    if step is None or case.status != CaseStatus.PASSED:
        reason = case.execution.reason or case.status
        raise PlannerError(f"the plan's run came to no result: {reason}")
    measured_by_rank = case.measured.ranks
    work_ms_by_rank = {
        rank: sum(_compute_sample_median(case, name, rank) for name in _WORK)
        for rank in measured_by_rank
    }
    time_by_stage = []
    for first_stage, *later_stages in plan.stage_groups:
        ranks = [
            rank
            for rank, measured in measured_by_rank.items()
            if measured.coordinates.get("stage") == first_stage
        ]
        if not ranks:
            raise PlannerError(
                f"the run has no rank of stage {first_stage}: it is not one of the plan"
            )
        passes_s = sum(
            plan.stages[stage].forward_s + plan.stages[stage].backward_s
            for stage in (first_stage, *later_stages)
        )
        predicted_s = plan.micro_batches * passes_s
        time_by_stage.append(
            TimeComparison(
                1000.0 * predicted_s, sum(work_ms_by_rank[rank] for rank in ranks) / len(ranks)
            )
        )
    busiest_rank = max(work_ms_by_rank, key=work_ms_by_rank.__getitem__)
    busiest_stage = measured_by_rank[busiest_rank].coordinates.get("stage")
    parts_ms = _split_step(case, busiest_rank, step.p50)
    groups = plan.stage_groups
    return Verification(
        TimeComparison(1000.0 * plan.step_s, step.p50),
        tuple(time_by_stage),
        busiest_rank,
        parts_ms,
        describe_case_noise(case),
        next((index for index, group in enumerate(groups) if group[0] == busiest_stage), 0),
    )


def _split_step(case: CaseState, rank: int, step_ms: float) -> dict[str, float]:
    """Return the parts of a rank's step: shares of all steps, times the median step."""
    rank_shares = compute_shares(case, "time_ms", rank)
    share_by_part = rank_shares.parts if rank_shares is not None else {}
    share_by_name = {
        _PASSES: sum(share_by_part.get(_format_part_name(name), 0.0) for name in _WORK)
    }
    share_by_name |= {
        _format_part_name(name): share_by_part.get(_format_part_name(name), 0.0)
        for name in _OTHER_PARTS
    }
    share_by_name["other"] = max(0.0, 1.0 - sum(share_by_name.values()))
    return {name: share * step_ms for name, share in share_by_name.items()}


def _format_part_name(metric: str) -> str:
    """Return the name of a part of the step in the result of `compute_shares`."""
    return format_metric_name(metric, "ms")


def _compute_sample_median(case: CaseState, metric: str, rank: int) -> float:
    repeats = case.measured.samples.get(metric, {}).get(rank, {})
    samples_ms = [sample_ms for samples in repeats.values() for sample_ms in samples]
    return median(samples_ms) if samples_ms else 0.0
