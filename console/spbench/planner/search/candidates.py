"""Plans as mode ``best`` searches them, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import NamedTuple

from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.plans import ALONG, STRAIGHT, PlanStage, SkipWay
from spbench.planner.profile.work import ModelWork
from spbench.planner.search.cost_model import CostModel, SampleSharing
from spbench.planner.simulation.memory import DeviceMemory, most_kept
from spbench_core.schedule.orders import (
    INTERLEAVED,
    STAGE_SCHEDULES,
    ZERO_BUBBLE,
    Schedule,
    StageSchedule,
    can_interleave,
    interleaved_in_flight,
    stage_in_flight,
)


def _by_memory(schedule: StageSchedule) -> int:
    return stage_in_flight(schedule, 0, 4, 100)


SCHEDULES = tuple(sorted(STAGE_SCHEDULES, key=_by_memory))
"""In the order of the memory they need: of equally fast ones the first is taken."""


_LEAST_PASSED = 3
"""The fewest stages of which one can be passed."""


class Shape(NamedTuple):
    """The shape of a plan: the cuts of the model, and the group of devices of each stage.

    Attributes:
        ends: The state after the last one of each stage.
        groups: The devices of the stages: of each, or of those of one round, whose groups have as
            many more.
    """

    ends: tuple[int, ...]
    groups: tuple[DeviceGroup, ...]

    @property
    def rounds(self) -> int:
        """Stages of each group: its virtual stages under an interleaved schedule."""
        return len(self.ends) // len(self.groups)

    @property
    def spans(self) -> list[tuple[int, int, DeviceGroup]]:
        """Return the first state, the state after the last, and the devices of each stage."""
        return list(zip((0, *self.ends[:-1]), self.ends, cycle(self.groups), strict=False))

    def schedules(self, micro_batches: int) -> tuple[Schedule, ...]:
        """Return the schedules in which it can be run."""
        if self.rounds > 1:
            return (INTERLEAVED,) if can_interleave(micro_batches, len(self.groups)) else ()
        return SCHEDULES[: 1 if len(self.ends) == 1 else None]


class Candidate(NamedTuple):
    """A plan: a shape, the samples of a micro-batch, and the order of the passes."""

    shape: Shape
    micro_batch: int
    schedule: Schedule


class Pass(NamedTuple):
    """The times of a stage, as in `plans.PlanStage`."""

    forward_s: float
    backward_s: float
    send_s: float
    all_reduce_s: float
    overlapped_s: float
    recompute: bool


def passes(cost_model: CostModel, candidate: Candidate) -> list[Pass] | None:
    """Return the times of a candidate's stages; None where one does not fit its devices' memory."""
    shape, micro_batch, _ = candidate
    again = _recomputing(cost_model, candidate)
    if again is None:
        return None
    spans = shape.spans
    whole = len(spans) == 1
    messages = _messages(cost_model, shape, micro_batch)
    found = []
    for at, (start, end, group) in enumerate(spans):
        sharing = cost_model.sharing(group, micro_batch)
        each = _pass(
            cost_model, sharing, group, (start, end), messages.send_s[at], again[at], whole
        )
        found.append(_with_overhead(each, messages.overhead_s[at]))
    return found


class _Messages(NamedTuple):
    """The messages of a micro-batch between stages.

    Attributes:
        send_s: By stage, the seconds until the next one has its inputs. What it gets from stages
            further up shares its link with what comes from the stage before it.
        overhead_s: By stage, for how long they keep its devices from computing.
    """

    send_s: list[float]
    overhead_s: list[float]


def _messages(cost_model: CostModel, shape: Shape, micro_batch: int) -> _Messages:
    spans = shape.spans
    groups = [group for *_, group in spans]
    made = _Messages([0.0] * len(spans), [0.0] * len(spans))
    ways: dict[tuple[int, int], float] = {}
    if skips(cost_model, shape, micro_batch) == STRAIGHT:
        ways = cost_model.ways_past(shape.ends, micro_batch)
    for at, ((*_, source), (start, end, target)) in enumerate(pairwise(spans)):
        count = cost_model.crossing(start, micro_batch)
        if ways:
            count = max(0.0, count - cost_model.past(start, end, micro_batch))
        made.send_s[at] = cost_model.links.transfer(source, target).seconds(count)
        further = sum(size for (_, to), size in ways.items() if to == at + 1)
        _add_overhead(cost_model, groups, made, (at, at + 1), max(0.0, count - further))
    for way, count in ways.items():
        _add_overhead(cost_model, groups, made, way, count)
    return made


def _add_overhead(
    cost_model: CostModel,
    groups: Sequence[DeviceGroup],
    made: _Messages,
    way: tuple[int, int],
    count: float,
) -> None:
    seconds = cost_model.overhead(groups[way[0]], groups[way[1]], count)
    for at in way:
        made.overhead_s[at] += seconds


def skips(cost_model: CostModel, shape: Shape, micro_batch: int) -> SkipWay | None:
    """Return the way that skip connections take past stages; None where there are none.

    They go straight where that spares the stages between more time in messages than the messages
    take that there are more.
    """
    spans = shape.spans
    if len(spans) < _LEAST_PASSED or not cost_model.states.skips.connections:
        return None
    links = cost_model.links
    spared = found = 0.0
    for (*_, source), (start, end, target) in pairwise(spans):
        past = cost_model.past(start, end, micro_batch)
        found += past
        rates = links.transfer(source, target), links.overhead(source, target)
        spared += past * sum(rate.per_byte for rate in rates)
    if not found:
        return None
    taken = 0.0
    for way in cost_model.ways_past(shape.ends, micro_batch):
        source, target = (spans[at][2] for at in way)
        taken += links.transfer(source, target).latency + links.overhead(source, target).latency
    return STRAIGHT if taken <= spared else ALONG


def _with_overhead(each: Pass, seconds: float) -> Pass:
    """Return a stage whose messages take so long of either pass."""
    if not seconds:
        return each
    return each._replace(forward_s=each.forward_s + seconds, backward_s=each.backward_s + seconds)


def _recomputing(cost_model: CostModel, candidate: Candidate) -> list[bool] | None:
    """Return which stages must recompute their activations to fit; None where one cannot."""
    shape, micro_batch, schedule = candidate
    micro_batches = cost_model.training.global_batch_size // micro_batch
    spans = shape.spans
    found: list[bool] = []
    for at, (start, end, group) in enumerate(spans):
        sharing = cost_model.sharing(group, micro_batch)
        if schedule != INTERLEAVED:
            kept = stage_in_flight(schedule, at, len(spans), micro_batches)
            again = cost_model.recomputes(sharing, start, end, kept)
        elif at < len(shape.groups):
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
            for work, memory in sharing.held
        )
        if max(peaks, default=0.0) <= 0:
            return again
    return None


def _memories(
    cost_model: CostModel, shape: Shape, at: int, work: ModelWork, recompute: bool
) -> list[DeviceMemory]:
    """Return the memory of each stage of a group."""
    return [
        cost_model.memory(work, start, end, recompute)
        for start, end, _ in shape.spans[at :: len(shape.groups)]
    ]


def _peak(memories: Sequence[DeviceMemory], shape: Shape, at: int, micro_batches: int) -> float:
    """Return the most that is in use on a device of a group in an interleaved step."""
    counts = interleaved_in_flight(at, len(shape.groups), shape.rounds, micro_batches)
    fixed = sum(memory.fixed for memory in memories)
    kept = most_kept([memory.held for memory in memories], counts)
    return fixed + kept + max(memory.once for memory in memories)


def _pass(
    cost_model: CostModel,
    sharing: SampleSharing,
    group: DeviceGroup,
    span: tuple[int, int],
    send: float,
    recompute: bool,
    whole: bool,
) -> Pass:
    start, end = span
    work, speed = sharing.work, sharing.speed
    forward = (work.forward[end] - work.forward[start]) / speed
    backward = (work.backward[end] - work.backward[start]) / speed
    rate = cost_model.links.all_reduce(group)
    reduce, overlapped = rate.seconds(work.parameters[end] - work.parameters[start]), 0.0
    if whole and reduce:
        reduce, overlapped = _beside_backward(cost_model, sharing, group, reduce)
    if recompute:
        backward += forward
    return Pass(forward, backward, send, reduce, overlapped, recompute)


def _beside_backward(
    cost_model: CostModel, sharing: SampleSharing, group: DeviceGroup, reduce: float
) -> tuple[float, float]:
    """Return the seconds of a whole model's all-reduce, and how many hide in the backward pass.

    The gradients of a state are summed from when its backward pass ends, beside the passes of the
    states before it and after the sums of those behind it. Each sum has its latency: where that
    takes longer than one sum after all, it is one sum after all.
    """
    work, rate = sharing.work, cost_model.links.all_reduce(group)
    done = total = 0.0
    for at in range(len(work.working) - 1, -1, -1):
        ready = (work.backward[-1] - work.backward[at]) / sharing.speed
        seconds = rate.seconds(work.parameters[at + 1] - work.parameters[at])
        if seconds:
            done = max(done, ready) + seconds
            total += seconds
    tail = done - work.backward[-1] / sharing.speed
    return (total, total - tail) if tail < reduce else (reduce, 0.0)


def stages_of(
    cost_model: CostModel, candidate: Candidate, times: Sequence[Pass]
) -> tuple[PlanStage, ...]:
    """Return a candidate's stages with their figures."""
    shape = candidate.shape
    found = []
    for at, ((start, end, group), each) in enumerate(zip(shape.spans, times, strict=True)):
        work = cost_model.sharing(group, candidate.micro_batch).most
        memory = cost_model.memory(work, start, end, each.recompute)
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
    return cost_model.memory(work, start, end, recompute).peak(kept)
