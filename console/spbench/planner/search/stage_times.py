"""The times of a plan's stages, and whether they fit their devices' memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.plans import PlanStage
from spbench.planner.profile.work import ModelWork
from spbench.planner.search.candidates import Candidate, Shape
from spbench.planner.search.cost_model import CostModel, SampleSharing
from spbench.planner.search.stage_messages import compute_messages
from spbench.planner.simulation.memory import DeviceMemory, compute_peak_kept_bytes
from spbench_core.schedule.orders import (
    INTERLEAVED,
    ZERO_BUBBLE,
    Schedule,
    count_in_flight,
    list_in_flight_combinations,
)
from spbench_core.schedule.timetable import DATA_SHARE


class CandidateStage(NamedTuple):
    """The times of a stage; the fields are those of `plans.PlanStage`."""

    forward_s: float
    backward_s: float
    send_s: float
    all_reduce_s: float
    overlapped_s: float
    recompute: bool
    data_share: float = DATA_SHARE
    overhead_s: float = 0.0


def compute_stages(cost_model: CostModel, candidate: Candidate) -> list[CandidateStage] | None:
    """Return the times of a candidate's stages; None if a stage does not fit."""
    shape, micro_batch_size, schedule = candidate
    stages_by_schedule = compute_stages_by_schedule(
        cost_model, shape, micro_batch_size, (schedule,)
    )
    return dict(stages_by_schedule).get(schedule)


def compute_recomputing_stages(
    cost_model: CostModel, candidate: Candidate
) -> list[CandidateStage] | None:
    """Return the times of stages that all recompute; None if a stage does not fit.

    The schedule must have one stage per device.
    """
    shape, micro_batch_size, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch_size
    for index, (start, end, group) in enumerate(shape.spans):
        in_flight = count_in_flight(schedule, index, len(shape.ends), micro_batches)
        memories = cost_model.get_stage_cost(group, start, end, micro_batch_size).memories
        if any(
            recomputing.compute_peak_bytes(in_flight) > capacity
            for _, recomputing, capacity in memories
        ):
            return None
    return _compute_times(cost_model, shape, micro_batch_size, False, [True] * len(shape.ends))


def compute_stages_by_schedule(
    cost_model: CostModel, shape: Shape, micro_batch_size: int, schedules: Sequence[Schedule]
) -> Iterator[tuple[Schedule, list[CandidateStage]]]:
    """Yield the schedules under which a shape fits, each with the times of its stages."""
    stages_by_backward: dict[tuple[bool, tuple[bool, ...]], list[CandidateStage]] = {}
    for schedule in schedules:
        recompute = _find_recomputing(cost_model, Candidate(shape, micro_batch_size, schedule))
        if recompute is None:
            continue
        key = schedule == ZERO_BUBBLE, tuple(recompute)
        if key not in stages_by_backward:
            stages_by_backward[key] = _compute_times(cost_model, shape, micro_batch_size, *key)
        yield schedule, stages_by_backward[key]


def _compute_times(
    cost_model: CostModel,
    shape: Shape,
    micro_batch_size: int,
    split_backward: bool,
    recompute: Sequence[bool],
) -> list[CandidateStage]:
    """Return the times of the stages.

    Args:
        cost_model: The costs.
        shape: The shape.
        micro_batch_size: Samples of a micro-batch.
        split_backward: Whether weight gradients are computed separately from data gradients.
        recompute: Whether each stage recomputes its activations.
    """
    spans = shape.spans
    messages = compute_messages(cost_model, shape, micro_batch_size)
    stages = []
    for index, (start, end, group) in enumerate(spans):
        cost = cost_model.get_stage_cost(group, start, end, micro_batch_size)
        forward_s = cost.forward_s
        backward_s = cost.backward_s
        data_s = DATA_SHARE * backward_s
        if split_backward:
            backward_s = cost.data_s + cost.weights_s
            data_s = cost.data_s
        if recompute[index]:
            backward_s += forward_s

        all_reduce_s = cost.all_reduce_s
        overlapped_s = 0.0
        if len(spans) == 1 and all_reduce_s:
            sharing = cost_model.get_sharing(group, micro_batch_size)
            all_reduce_s, overlapped_s = _compute_all_reduce_overlap(
                cost_model, sharing, group, all_reduce_s
            )

        overhead_s = messages.overhead_s[index]
        data_share = DATA_SHARE
        if split_backward and backward_s:
            data_share = (data_s + overhead_s) / (backward_s + overhead_s)
        stages.append(
            CandidateStage(
                forward_s + overhead_s,
                backward_s + overhead_s,
                messages.send_s[index],
                all_reduce_s,
                overlapped_s,
                recompute[index],
                data_share,
                overhead_s,
            )
        )
    return stages


def _find_recomputing(cost_model: CostModel, candidate: Candidate) -> list[bool] | None:
    """Return whether each stage must recompute to fit; None if one cannot fit."""
    shape, micro_batch_size, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch_size
    spans = shape.spans
    recompute: list[bool] = []
    for index, (start, end, group) in enumerate(spans):
        if schedule != INTERLEAVED:
            in_flight = count_in_flight(schedule, index, len(spans), micro_batches)
            cost = cost_model.get_stage_cost(group, start, end, micro_batch_size)
            must_recompute = cost.must_recompute(in_flight)
        elif index < len(shape.groups):
            sharing = cost_model.get_sharing(group, micro_batch_size)
            must_recompute = _group_must_recompute(cost_model, shape, index, sharing, micro_batches)
        else:
            # Decided for all stages of the group at once, since they share its memory.
            must_recompute = recompute[index - len(shape.groups)]
        if must_recompute is None or (must_recompute and schedule == ZERO_BUBBLE):
            return None  # zb-h1 keeps all activations
        recompute.append(must_recompute)
    return recompute


def _group_must_recompute(
    cost_model: CostModel, shape: Shape, group: int, sharing: SampleSharing, micro_batches: int
) -> bool | None:
    """Return whether all stages of a group must recompute; None if they cannot fit."""
    for recompute in (False, True):
        missing_bytes = []
        for work, capacity_bytes in sharing.memories:
            memories = _list_group_memories(cost_model, shape, group, work, recompute)
            missing_bytes.append(
                _compute_interleaved_peak_bytes(memories, shape, group, micro_batches)
                - capacity_bytes
            )
        if max(missing_bytes, default=0.0) <= 0:
            return recompute
    return None


def _list_group_memories(
    cost_model: CostModel, shape: Shape, group: int, work: ModelWork, recompute: bool
) -> list[DeviceMemory]:
    """Return the memory need of each stage of a group."""
    return [
        cost_model.compute_device_memory(work, start, end, recompute)
        for start, end, _ in shape.spans[group :: len(shape.groups)]
    ]


def _compute_interleaved_peak_bytes(
    memories: Sequence[DeviceMemory], shape: Shape, group: int, micro_batches: int
) -> float:
    """Return the peak bytes of a device of a group in an interleaved step."""
    in_flight_combinations = list_in_flight_combinations(
        group, len(shape.groups), shape.rounds, micro_batches
    )
    fixed_bytes = sum(memory.fixed_bytes for memory in memories)
    kept_bytes = compute_peak_kept_bytes(
        [memory.bytes_per_micro_batch for memory in memories], in_flight_combinations
    )
    return fixed_bytes + kept_bytes + max(memory.working_bytes for memory in memories)


class _AllReduceTime(NamedTuple):
    """Seconds of an all-reduce, and of its part during the backward pass."""

    total_s: float
    overlapped_s: float


def _compute_all_reduce_overlap(
    cost_model: CostModel, sharing: SampleSharing, group: DeviceGroup, single_sum_s: float
) -> _AllReduceTime:
    """Return the time of a whole model's all-reduce.

    The gradients of a state are summed from the end of its backward pass, during the passes of the
    states before it and after the sums of the states behind it. Each sum has a latency. If that
    takes longer than one sum after all passes, there is one sum after all passes.
    """
    work = sharing.work
    all_reduce = cost_model.message_costs.get_all_reduce_cost(group)
    last_sum_end_s = total_s = 0.0
    for state in range(len(work.working_bytes) - 1, -1, -1):
        ready_s = (work.backward_s[-1] - work.backward_s[state]) / sharing.speed
        sum_s = all_reduce.compute_seconds(
            work.parameter_bytes[state + 1] - work.parameter_bytes[state]
        )
        if sum_s:
            last_sum_end_s = max(last_sum_end_s, ready_s) + sum_s
            total_s += sum_s
    exposed_s = last_sum_end_s - work.backward_s[-1] / sharing.speed
    if exposed_s < single_sum_s:
        return _AllReduceTime(total_s, total_s - exposed_s)
    return _AllReduceTime(single_sum_s, 0.0)


def build_plan_stages(
    cost_model: CostModel, candidate: Candidate, times: Sequence[CandidateStage]
) -> tuple[PlanStage, ...]:
    """Return a candidate's stages with their times and memory."""
    shape = candidate.shape
    stages = []
    for index, ((start, end, group), stage_times) in enumerate(
        zip(shape.spans, times, strict=True)
    ):
        work = cost_model.get_sharing(group, candidate.micro_batch_size).largest
        recompute = stage_times.recompute
        memory = cost_model.compute_device_memory(work, start, end, recompute)
        stages.append(
            PlanStage(
                start=start,
                end=end,
                devices=group.list_devices(cost_model.cluster.sizes),
                memory_bytes=_compute_peak_bytes(cost_model, candidate, index, work, recompute),
                fixed_bytes=memory.fixed_bytes,
                bytes_per_micro_batch=memory.bytes_per_micro_batch,
                working_bytes=memory.working_bytes,
                **stage_times._asdict(),
            )
        )
    return tuple(stages)


def _compute_peak_bytes(
    cost_model: CostModel, candidate: Candidate, stage: int, work: ModelWork, recompute: bool
) -> float:
    """Return the peak memory of each device of a stage, for all stages of the device."""
    shape, micro_batch_size, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch_size
    if schedule == INTERLEAVED:
        group = stage % len(shape.groups)
        memories = _list_group_memories(cost_model, shape, group, work, recompute)
        return _compute_interleaved_peak_bytes(memories, shape, group, micro_batches)
    start, end, _ = shape.spans[stage]
    in_flight = count_in_flight(schedule, stage, len(shape.ends), micro_batches)
    return cost_model.compute_device_memory(work, start, end, recompute).compute_peak_bytes(
        in_flight
    )
