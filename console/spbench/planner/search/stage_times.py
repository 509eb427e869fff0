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
from spbench.planner.simulation.memory import DeviceMemory, peak_held_bytes
from spbench_core.schedule.orders import (
    INTERLEAVED,
    ZERO_BUBBLE,
    Schedule,
    interleaved_in_flight,
    stage_in_flight,
)
from spbench_core.schedule.timetable import DATA_SHARE


class PassTimes(NamedTuple):
    """The times of a stage, as in `plans.PlanStage`."""

    forward_s: float
    backward_s: float
    send_s: float
    all_reduce_s: float
    overlapped_s: float
    recompute: bool
    data_share: float = DATA_SHARE
    overhead_s: float = 0.0


def compute_passes(cost_model: CostModel, candidate: Candidate) -> list[PassTimes] | None:
    """Return the times of a candidate's stages; None where one does not fit its devices' memory."""
    shape, micro_batch, schedule = candidate
    return dict(compute_passes_by_schedule(cost_model, shape, micro_batch, (schedule,))).get(
        schedule
    )


def compute_recomputing_passes(
    cost_model: CostModel, candidate: Candidate
) -> list[PassTimes] | None:
    """Return the times of stages that all recompute; None if one does not fit its devices' memory.

    The schedule must have one stage per device.
    """
    shape, micro_batch, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch
    for at, (start, end, group) in enumerate(shape.spans):
        kept = stage_in_flight(schedule, at, len(shape.ends), micro_batches)
        memories = cost_model.stage_cost(group, start, end, micro_batch).memories
        if any(again.peak(kept) > memory for _, again, memory in memories):
            return None
    return _passes(cost_model, shape, micro_batch, False, [True] * len(shape.ends))


def compute_passes_by_schedule(
    cost_model: CostModel, shape: Shape, micro_batch: int, schedules: Sequence[Schedule]
) -> Iterator[tuple[Schedule, list[PassTimes]]]:
    """Yield the schedules under which a shape fits, and the times of its stages under each."""
    found: dict[tuple[bool, tuple[bool, ...]], list[PassTimes]] = {}
    for schedule in schedules:
        recomputing = _recomputing(cost_model, Candidate(shape, micro_batch, schedule))
        if recomputing is None:
            continue
        key = schedule == ZERO_BUBBLE, tuple(recomputing)
        if key not in found:
            found[key] = _passes(cost_model, shape, micro_batch, *key)
        yield schedule, found[key]


def _passes(
    cost_model: CostModel, shape: Shape, micro_batch: int, apart: bool, again: Sequence[bool]
) -> list[PassTimes]:
    """Return the times of the stages.

    Args:
        cost_model: The costs.
        shape: The shape.
        micro_batch: Samples.
        apart: Whether gradients of weights are computed apart from those of data.
        again: Which stages recompute their activations.
    """
    spans = shape.spans
    messages = compute_messages(cost_model, shape, micro_batch)
    found = []
    for at, (start, end, group) in enumerate(spans):
        cost = cost_model.stage_cost(group, start, end, micro_batch)
        forward = cost.forward_s
        backward = cost.backward_s
        reduce = cost.all_reduce_s
        overlapped = 0.0
        data = DATA_SHARE * backward
        if apart:
            backward = cost.data_s + cost.weights_s
            data = cost.data_s
        if len(spans) == 1 and reduce:
            sharing = cost_model.sharing(group, micro_batch)
            reduce, overlapped = _beside_backward(cost_model, sharing, group, reduce)
        if again[at]:
            backward += forward
        overhead = messages.overhead_s[at]
        data_share = (data + overhead) / (backward + overhead) if apart and backward else DATA_SHARE
        found.append(
            PassTimes(
                forward + overhead,
                backward + overhead,
                messages.send_s[at],
                reduce,
                overlapped,
                again[at],
                data_share,
                overhead,
            )
        )
    return found


def _recomputing(cost_model: CostModel, candidate: Candidate) -> list[bool] | None:
    """Return which stages must recompute their activations to fit; None where one cannot."""
    shape, micro_batch, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch
    spans = shape.spans
    found: list[bool] = []
    for at, (start, end, group) in enumerate(spans):
        if schedule != INTERLEAVED:
            kept = stage_in_flight(schedule, at, len(spans), micro_batches)
            again = cost_model.stage_cost(group, start, end, micro_batch).must_recompute(kept)
        elif at < len(shape.groups):
            sharing = cost_model.sharing(group, micro_batch)
            again = _group_recomputes(cost_model, shape, at, sharing, micro_batches)
        else:
            again = found[at - len(shape.groups)]  # as its group's first stage
        if again is None or (again and schedule == ZERO_BUBBLE):
            return None  # zb-h1 keeps all activations
        found.append(again)
    return found


def _group_recomputes(
    cost_model: CostModel, shape: Shape, at: int, sharing: SampleSharing, micro_batches: int
) -> bool | None:
    """Return whether all stages of a group must recompute; None where they do not fit so either."""
    for again in (False, True):
        peaks = (
            _peak(_memories(cost_model, shape, at, work, again), shape, at, micro_batches) - memory
            for work, memory in sharing.memories
        )
        if max(peaks, default=0.0) <= 0:
            return again
    return None


def _memories(
    cost_model: CostModel, shape: Shape, at: int, work: ModelWork, recompute: bool
) -> list[DeviceMemory]:
    """Return the memory of each stage of a group."""
    return [
        cost_model.device_memory(work, start, end, recompute)
        for start, end, _ in shape.spans[at :: len(shape.groups)]
    ]


def _peak(memories: Sequence[DeviceMemory], shape: Shape, at: int, micro_batches: int) -> float:
    """Return the most that is in use on a device of a group in an interleaved step."""
    counts = interleaved_in_flight(at, len(shape.groups), shape.rounds, micro_batches)
    fixed = sum(memory.fixed for memory in memories)
    kept = peak_held_bytes([memory.held for memory in memories], counts)
    return fixed + kept + max(memory.once for memory in memories)


def _beside_backward(
    cost_model: CostModel, sharing: SampleSharing, group: DeviceGroup, reduce: float
) -> tuple[float, float]:
    """Return the seconds of a whole model's all-reduce, and how many hide in the backward pass.

    The gradients of a state are summed from when its backward pass ends, beside the passes of the
    states before it and after the sums of those behind it. Each sum has its latency: where that
    takes longer than one sum after all, it is one sum after all.
    """
    work = sharing.work
    rate = cost_model.links.all_reduce_cost(group)
    done = total = 0.0
    for at in range(len(work.working) - 1, -1, -1):
        ready = (work.backward[-1] - work.backward[at]) / sharing.speed
        seconds = rate.seconds(work.parameters[at + 1] - work.parameters[at])
        if seconds:
            done = max(done, ready) + seconds
            total += seconds
    tail = done - work.backward[-1] / sharing.speed
    return (total, total - tail) if tail < reduce else (reduce, 0.0)


def build_plan_stages(
    cost_model: CostModel, candidate: Candidate, times: Sequence[PassTimes]
) -> tuple[PlanStage, ...]:
    """Return a candidate's stages with their figures."""
    shape = candidate.shape
    found = []
    for at, ((start, end, group), each) in enumerate(zip(shape.spans, times, strict=True)):
        work = cost_model.sharing(group, candidate.micro_batch).largest
        memory = cost_model.device_memory(work, start, end, each.recompute)
        found.append(
            PlanStage(
                start=start,
                end=end,
                devices=group.devices(cost_model.cluster.sizes),
                memory_bytes=_memory_of(cost_model, candidate, at, work, each.recompute),
                fixed_bytes=memory.fixed,
                held_bytes=memory.held,
                once_bytes=memory.once,
                **each._asdict(),
            )
        )
    return tuple(found)


def _memory_of(
    cost_model: CostModel, candidate: Candidate, at: int, work: ModelWork, recompute: bool
) -> float:
    """Return the peak memory of each device of a stage, for all stages that it has."""
    shape, micro_batch, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch
    if schedule == INTERLEAVED:
        group = at % len(shape.groups)
        return _peak(
            _memories(cost_model, shape, group, work, recompute), shape, group, micro_batches
        )
    start, end, _ = shape.spans[at]
    kept = stage_in_flight(schedule, at, len(shape.ends), micro_batches)
    return cost_model.device_memory(work, start, end, recompute).peak(kept)
