"""Plans as mode ``best`` searches them, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spbench.planner.memory import StageSchedule, in_flight
from spbench.planner.placement import Group
from spbench.planner.plans import Stage
from spbench.planner.prices import Prices, Sharing

SCHEDULES: tuple[StageSchedule, ...] = ("1f1b", "1f1b-deep", "gpipe")
"""In the order of the memory they need: of equally fast ones the first is taken."""


class Shape(NamedTuple):
    """Where a model is cut, and where its stages are.

    Attributes:
        ends: The state after the last one of each stage.
        groups: The devices of each stage.
    """

    ends: tuple[int, ...]
    groups: tuple[Group, ...]

    @property
    def spans(self) -> list[tuple[int, int, Group]]:
        """Return the first state, the state after the last, and the devices of each stage."""
        return list(zip((0, *self.ends[:-1]), self.ends, self.groups, strict=True))


class Draft(NamedTuple):
    """A plan: a shape, the samples of a micro-batch, and the order of the passes."""

    shape: Shape
    micro_batch: int
    schedule: StageSchedule


class Pass(NamedTuple):
    """The times of a stage, as in `plans.Stage`."""

    forward_s: float
    backward_s: float
    send_s: float
    all_reduce_s: float
    overlapped_s: float
    recompute: bool


def passes(prices: Prices, draft: Draft) -> list[Pass] | None:
    """Return the times of a draft's stages; None where one does not fit its devices' memory."""
    (ends, groups), micro_batch, schedule = draft
    micro_batches = prices.training.global_batch_size // micro_batch
    found = []
    start = 0
    for at, (end, group) in enumerate(zip(ends, groups, strict=True)):
        sharing = prices.sharing(group, micro_batch)
        kept = in_flight(schedule, at, len(ends), micro_batches)
        recompute = prices.recomputes(sharing, start, end, kept)
        if recompute is None:
            return None
        send = 0.0
        if end < ends[-1]:
            send = prices.send(group, groups[at + 1], end, micro_batch)
        whole = len(ends) == 1
        found.append(_pass(prices, sharing, group, (start, end), send, recompute, whole))
        start = end
    return found


def _pass(
    prices: Prices,
    sharing: Sharing,
    group: Group,
    span: tuple[int, int],
    send: float,
    recompute: bool,
    whole: bool,
) -> Pass:
    start, end = span
    work, speed = sharing.work, sharing.speed
    forward = (work.forward[end] - work.forward[start]) / speed
    backward = (work.backward[end] - work.backward[start]) / speed
    rate = prices.links.all_reduce(group)
    reduce, overlapped = rate.seconds(work.parameters[end] - work.parameters[start]), 0.0
    if whole and reduce:
        reduce, overlapped = _beside_backward(prices, sharing, group, reduce)
    if recompute:
        backward += forward
    return Pass(forward, backward, send, reduce, overlapped, recompute)


def _beside_backward(
    prices: Prices, sharing: Sharing, group: Group, reduce: float
) -> tuple[float, float]:
    """Return the seconds of a whole model's all-reduce, and how many hide in the backward pass.

    The gradients of a state are summed from when its backward pass ends, beside the passes of the
    states before it and after the sums of those behind it. Each sum has its latency: where that
    takes longer than one sum after all, it is one sum after all.
    """
    work, rate = sharing.work, prices.links.all_reduce(group)
    done = total = 0.0
    for at in range(len(work.working) - 1, -1, -1):
        ready = (work.backward[-1] - work.backward[at]) / sharing.speed
        seconds = rate.seconds(work.parameters[at + 1] - work.parameters[at])
        if seconds:
            done = max(done, ready) + seconds
            total += seconds
    tail = done - work.backward[-1] / sharing.speed
    return (total, total - tail) if tail < reduce else (reduce, 0.0)


def stages_of(prices: Prices, draft: Draft, times: Sequence[Pass]) -> tuple[Stage, ...]:
    """Return a draft's stages with their figures."""
    micro_batches = prices.training.global_batch_size // draft.micro_batch
    found = []
    for at, ((start, end, group), each) in enumerate(zip(draft.shape.spans, times, strict=True)):
        work = prices.sharing(group, draft.micro_batch).most
        memory = prices.memory(work, start, end, each.recompute)
        kept = in_flight(draft.schedule, at, len(times), micro_batches)
        found.append(
            Stage(
                start=start,
                end=end,
                devices=group.devices(prices.cluster.sizes),
                memory_bytes=memory.peak(kept),
                fixed_bytes=memory.fixed,
                held_bytes=memory.held,
                once_bytes=memory.once,
                **each._asdict(),
            )
        )
    return tuple(found)
