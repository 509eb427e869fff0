"""Timetables of a step: when each pass, message and all-reduce of every stage runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Protocol

from spbench_core.schedule.orders import (
    ZERO_BUBBLE,
    Kind,
    StageSchedule,
    interleaved_order,
    stage_in_flight,
    zero_bubble_kinds,
)

DATA_SHARE = 0.5
"""The share of a backward pass that computes gradients of data, as zb-h1 has them apart from those
of weights, where nobody has measured it: a convolution has as many multiply-adds for either."""


class Timed(Protocol):
    """The times of a stage that a timetable needs, in seconds, as a plan's stage has them."""

    @property
    def forward_s(self) -> float: ...
    @property
    def backward_s(self) -> float: ...
    @property
    def send_s(self) -> float: ...
    @property
    def all_reduce_s(self) -> float: ...
    @property
    def overlapped_s(self) -> float: ...
    @property
    def data_share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Timetable:
    """Seconds after the start of a step, by stage and micro-batch.

    Attributes:
        forward: The start of each forward pass.
        backward_end: The end of each backward pass; it starts ``backward_s`` earlier. Of zb-h1 that
            of the gradients of data, which takes the stage's ``data_share`` of it.
        send: The start of each output's transfer to the next stage.
        back: The start of each gradient's transfer to the stage before.
        reduce: The start of the all-reduce of each stage; by stage alone.
        end_s: The end of the last all-reduce.
        weights_end: Of zb-h1 the end of each micro-batch's gradients of weights.
    """

    forward: list[list[float]]
    backward_end: list[list[float]]
    send: list[list[float]]
    back: list[list[float]]
    reduce: list[float]
    end_s: float
    weights_end: list[list[float]] | None = None

    @property
    def released(self) -> list[list[float]]:
        """When the activations of each micro-batch are no longer kept."""
        return self.backward_end if self.weights_end is None else self.weights_end


def timetable(stages: Sequence[Timed], schedule: StageSchedule, micro_batches: int) -> Timetable:
    """Return the timetable of a step, of one stage a group of devices.

    A stage runs forward passes until it has as many micro-batches in flight as the schedule
    allows, and from then on a backward and a forward pass in turn. Of zb-h1 the parts of backward
    passes come in the order of `zero_bubble_kinds`.
    """
    count = len(stages)
    rows: list[_Row] = [
        _SplitRow(stage, order=zero_bubble_kinds(at, count, micro_batches))
        if schedule == ZERO_BUBBLE
        else _Row(stage, stage_in_flight(schedule, at, count, micro_batches))
        for at, stage in enumerate(stages)
    ]
    rows[0].arrived = [0.0] * micro_batches
    for row, following in pairwise(rows):
        row.following, following.before = following, row
    waiting = list(range(count))
    while any(len(row.backward_end) < micro_batches for row in rows):
        for at in waiting:  # down the pipeline and up again, each as far as it gets
            rows[at].advance(micro_batches)
        waiting.reverse()
    reduce = [row.free - row.stage.overlapped_s for row in rows]
    ends = (row.free + row.stage.all_reduce_s - row.stage.overlapped_s for row in rows)
    last = max(row.free for row in rows)
    return Timetable(
        [row.forward for row in rows],
        [row.backward_end for row in rows],
        [row.send for row in rows],
        [row.back for row in rows],
        reduce,
        max(last, *ends),
        [row.weights_end for row in rows] if schedule == ZERO_BUBBLE else None,
    )


@dataclass(slots=True)
class _Row:
    """The state of one stage while a step is simulated.

    Attributes:
        most: The most micro-batches in flight.
        forward_s: The seconds of a forward pass.
        backward_s: The seconds of a backward pass, or of its part that the stage before waits for.
        send_s: The seconds of a message to the next stage, or of one back.
        free: The time from which its devices are free.
        sent: The end of its last message to the next stage.
        sent_back: The end of its last one to the stage before.
        arrived: The times at which the inputs of micro-batches arrive.
        returned: The times at which their gradients arrive; in the last stage, after forward.
    """

    stage: Timed
    most: int = 0
    forward_s: float = field(init=False)
    backward_s: float = field(init=False)
    send_s: float = field(init=False)
    before: _Row | None = None
    following: _Row | None = None
    free: float = 0.0
    sent: float = 0.0
    sent_back: float = 0.0
    arrived: list[float] = field(default_factory=list)
    returned: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward_end: list[float] = field(default_factory=list)
    send: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    weights_end: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forward_s, self.send_s = self.stage.forward_s, self.stage.send_s
        self.backward_s = self.stage.backward_s

    def advance(self, micro_batches: int) -> None:
        """Run every pass whose input is there, in the order of the schedule."""
        arrived, returned = self.arrived, self.returned
        begun, done = len(self.forward), len(self.backward_end)
        while done < micro_batches:
            if begun < micro_batches and begun - done < self.most:
                if begun >= len(arrived):
                    return
                self._run_forward(arrived[begun])
                begun += 1
            else:
                if done >= len(returned):
                    return
                self._run_backward(returned[done])
                done += 1

    def _run_forward(self, ready: float) -> None:
        start = ready if ready > self.free else self.free
        self.forward.append(start)
        self.free = end = start + self.forward_s
        if self.following is None:
            self.returned.append(end)
            return
        start = end if end > self.sent else self.sent
        self.send.append(start)
        self.sent = start + self.send_s
        self.following.arrived.append(self.sent)

    def _run_backward(self, ready: float) -> None:
        start = ready if ready > self.free else self.free
        self.free = end = start + self.backward_s
        self.backward_end.append(end)
        if self.before is None:
            return
        start = end if end > self.sent_back else self.sent_back
        self.back.append(start)
        self.sent_back = start + self.before.send_s
        self.before.returned.append(self.sent_back)


@dataclass(slots=True)
class _SplitRow(_Row):
    """The state of one stage whose backward passes are in two parts.

    Attributes:
        order: The kinds of its tasks.
        done: The number of tasks that have run.
    """

    order: tuple[Kind, ...] = ()
    done: int = 0

    def __post_init__(self) -> None:
        _Row.__post_init__(self)  # with slots a dataclass has no super()
        self.backward_s *= self.stage.data_share

    def advance(self, micro_batches: int) -> None:
        """Run every task whose input is there, in its order."""
        weights_s = self.stage.backward_s - self.backward_s
        while self.done < len(self.order):
            kind = self.order[self.done]
            if kind == "weights":
                self.free += weights_s
                self.weights_end.append(self.free)
            else:
                forward = kind == "forward"
                ready = self.arrived if forward else self.returned
                next_one = len(self.forward if forward else self.backward_end)
                if next_one >= len(ready):
                    return
                run = self._run_forward if forward else self._run_backward
                run(ready[next_one])
            self.done += 1


def rounds_timetable(stages: Sequence[Timed], rounds: int, micro_batches: int) -> Timetable:
    """Return the timetable of an interleaved step: each group of devices has several stages.

    A link carries what a group sends to another in the order of the group's passes, outputs and
    gradients alike. After its last pass a group sums the gradients of its stages, one by one.

    Args:
        stages: All of them; those of a group are as far apart as there are groups.
        rounds: Stages of each group.
        micro_batches: A multiple of the number of groups.
    """
    step = _Step(stages, len(stages) // rounds, rounds, micro_batches)
    while step.advance_all():
        pass
    return step.timetable()


def rounds_end(
    stages: Sequence[Timed], rounds: int, micro_batches: int, limit: float = inf
) -> float:
    """Return when an interleaved step ends, or infinity as soon as it must end after a limit.

    Args:
        stages: As for `rounds_timetable`.
        rounds: Stages of each group.
        micro_batches: A multiple of the number of groups.
        limit: Seconds.
    """
    step = _Step(stages, len(stages) // rounds, rounds, micro_batches)
    limit *= 1.0 + _LEEWAY
    while step.advance_all():
        if step.least_end() > limit:
            return inf
    return step.timetable().end_s


_LEEWAY = 1e-9
"""More than what rounding can add to the sum of a group's passes."""


@lru_cache(maxsize=64)
def _order(
    group: int, groups: int, rounds: int, micro_batches: int
) -> tuple[tuple[bool, int, int], ...]:
    """Return the tasks of a group: whether it is a forward pass, the stage and the micro-batch."""
    order = interleaved_order(group, groups, rounds, range(micro_batches))
    return tuple((task.kind == "forward", task.stage, task.micro_batch) for task in order)


@dataclass(slots=True)
class _Passes:
    """The passes of a stage in one direction while an interleaved step is simulated.

    Attributes:
        seconds: Of each.
        ready: When their inputs are there.
        times: When they start; of backward passes when they end.
        send: The seconds of each message that follows.
        link: The number of the link that carries it.
        sent: When the messages start.
        following: What gets them; None where there is nothing to send.
        here: Whether that is in the same stage, so that nothing is sent either.
    """

    seconds: float
    ready: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    send: float = 0.0
    link: int = 0
    sent: list[float] = field(default_factory=list)
    following: _Passes | None = None
    here: bool = False


class _Step:
    """The state of an interleaved step while it is simulated.

    Args:
        stages: All of them.
        groups: The number of groups.
        rounds: Stages of each.
        micro_batches: The number of micro-batches.
    """

    def __init__(
        self, stages: Sequence[Timed], groups: int, rounds: int, micro_batches: int
    ) -> None:
        self._stages, self._groups = stages, groups
        self._orders = [_order(group, groups, rounds, micro_batches) for group in range(groups)]
        self._next, self._free = [0] * groups, [0.0] * groups
        self._left = [
            micro_batches * sum(each.forward_s + each.backward_s for each in stages[group::groups])
            for group in range(groups)
        ]
        self._links = [0.0] * groups**2
        self._forward = [_Passes(stage.forward_s) for stage in stages]
        self._backward = [_Passes(stage.backward_s) for stage in stages]
        self._forward[0].ready = [0.0] * micro_batches
        self._forward[-1].following, self._forward[-1].here = self._backward[-1], True
        for at, stage in enumerate(stages[:-1]):
            self._join(self._forward[at], self._forward[at + 1], at, at + 1, stage.send_s)
            self._join(self._backward[at + 1], self._backward[at], at + 1, at, stage.send_s)

    def _join(
        self, before: _Passes, following: _Passes, source: int, target: int, seconds: float
    ) -> None:
        before.following, before.send = following, seconds
        before.link = source % self._groups * self._groups + target % self._groups

    def advance_all(self) -> bool:
        """Run every pass whose input is there, group by group; return whether there was any."""
        return sum(map(self._advance, range(self._groups))) > 0

    def least_end(self) -> float:
        """Return when the step ends at least: a group then runs what is left without a pause."""
        return max(free + left for free, left in zip(self._free, self._left, strict=True))

    def _advance(self, group: int) -> bool:
        order, begun = self._orders[group], self._next[group]
        free, done, links = self._free[group], 0.0, self._links
        at = begun
        for at in range(begun, len(order)):
            forward, stage, micro_batch = order[at]
            passes = (self._forward if forward else self._backward)[stage]
            inputs, seconds = passes.ready, passes.seconds
            if micro_batch >= len(inputs):
                break
            ready = inputs[micro_batch]
            start = ready if ready > free else free
            free = start + seconds
            done += seconds
            passes.times.append(start if forward else free)
            following = passes.following
            if following is None:
                continue
            if passes.here:
                following.ready.append(free)
                continue
            busy = links[passes.link]
            start = free if free > busy else busy
            passes.sent.append(start)
            links[passes.link] = start = start + passes.send
            following.ready.append(start)
        else:
            at = len(order)
        self._next[group], self._free[group] = at, free
        self._left[group] -= done
        return at > begun

    def timetable(self) -> Timetable:
        """Return the timetable, once no group can advance."""
        reduce, ends = [], list(self._free)
        for at, stage in enumerate(self._stages):
            group = at % self._groups
            reduce.append(ends[group])
            ends[group] += stage.all_reduce_s
        return Timetable(
            forward=[passes.times for passes in self._forward],
            backward_end=[passes.times for passes in self._backward],
            send=[passes.sent for passes in self._forward],
            back=[passes.sent for passes in self._backward],
            reduce=reduce,
            end_s=max(ends),
        )
