"""Timetables of a step: when each pass, message and all-reduce of every stage runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

from spbench_core.schedule.orders import (
    Order,
    StageSchedule,
    Task,
    interleaved_order,
    stage_in_flight,
)


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


@dataclass(frozen=True, slots=True)
class Timetable:
    """Seconds after the start of a step, by stage and micro-batch.

    Attributes:
        forward: The start of each forward pass.
        backward_end: The end of each backward pass; it starts ``backward_s`` earlier.
        send: The start of each output's transfer to the next stage.
        back: The start of each gradient's transfer to the stage before.
        reduce: The start of the all-reduce of each stage; by stage alone.
        end_s: The end of the last all-reduce.
    """

    forward: list[list[float]]
    backward_end: list[list[float]]
    send: list[list[float]]
    back: list[list[float]]
    reduce: list[float]
    end_s: float


def timetable(stages: Sequence[Timed], schedule: StageSchedule, micro_batches: int) -> Timetable:
    """Return the timetable of a step, of one stage a group of devices.

    A stage runs forward passes until it has as many micro-batches in flight as the schedule
    allows, and from then on a backward and a forward pass in turn.
    """
    count = len(stages)
    rows = [
        _Row(stage, stage_in_flight(schedule, at, count, micro_batches))
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
    reduce = [row.backward_end[-1] - row.stage.overlapped_s for row in rows]
    ends = (row.backward_end[-1] + row.stage.all_reduce_s - row.stage.overlapped_s for row in rows)
    last = max(row.backward_end[-1] for row in rows)
    return Timetable(
        [row.forward for row in rows],
        [row.backward_end for row in rows],
        [row.send for row in rows],
        [row.back for row in rows],
        reduce,
        max(last, *ends),
    )


@dataclass(slots=True)
class _Row:
    """The state of one stage while a step is simulated.

    Attributes:
        most: The most micro-batches in flight.
        free: The time from which its devices are free.
        arrived: The times at which the inputs of micro-batches arrive.
        returned: The times at which their gradients arrive; in the last stage, after forward.
    """

    stage: Timed
    most: int
    before: _Row | None = None
    following: _Row | None = None
    free: float = 0.0
    arrived: list[float] = field(default_factory=list)
    returned: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward_end: list[float] = field(default_factory=list)
    send: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)

    def advance(self, micro_batches: int) -> None:
        """Run every pass whose input is there, in the order of the schedule."""
        while (done := len(self.backward_end)) < micro_batches:
            begun = len(self.forward)
            if begun < micro_batches and begun - done < self.most:
                if begun >= len(self.arrived):
                    return
                self._run_forward(self.arrived[begun])
            else:
                if done >= len(self.returned):
                    return
                self._run_backward(self.returned[done])

    def _run_forward(self, ready: float) -> None:
        start = ready if ready > self.free else self.free
        self.forward.append(start)
        self.free = end = start + self.stage.forward_s
        if self.following is None:
            self.returned.append(end)
            return
        seconds = self.stage.send_s
        start = max(end, self.send[-1] + seconds) if self.send else end
        self.send.append(start)
        self.following.arrived.append(start + seconds)

    def _run_backward(self, ready: float) -> None:
        start = ready if ready > self.free else self.free
        self.free = end = start + self.stage.backward_s
        self.backward_end.append(end)
        if self.before is None:
            return
        seconds = self.before.stage.send_s
        start = max(end, self.back[-1] + seconds) if self.back else end
        self.back.append(start)
        self.before.returned.append(start + seconds)


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
    while sum(map(step.advance, range(step.groups))):
        pass
    return step.timetable()


@lru_cache(maxsize=64)
def _order(group: int, groups: int, rounds: int, micro_batches: int) -> Order:
    return interleaved_order(group, groups, rounds, range(micro_batches))


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
        self.groups = groups
        self._stages, self._last = stages, len(stages) - 1
        self._orders = [_order(group, groups, rounds, micro_batches) for group in range(groups)]
        self._next, self._free = [0] * groups, [0.0] * groups
        self._links: dict[tuple[int, int], float] = {}
        self._arrived: list[list[float]] = [[] for _ in stages]
        self._arrived[0] = [0.0] * micro_batches
        self._returned: list[list[float]] = [[] for _ in stages]
        self._forward: list[list[float]] = [[] for _ in stages]
        self._backward_end: list[list[float]] = [[] for _ in stages]
        self._send: list[list[float]] = [[] for _ in stages]
        self._back: list[list[float]] = [[] for _ in stages]

    def advance(self, group: int) -> bool:
        """Run every pass of a group whose input is there; return whether there was any."""
        order, begun = self._orders[group], self._next[group]
        while self._next[group] < len(order) and self._run(group, order[self._next[group]]):
            self._next[group] += 1
        return self._next[group] > begun

    def _run(self, group: int, task: Task) -> bool:
        forward = task.kind == "forward"
        ready = (self._arrived if forward else self._returned)[task.stage]
        if task.micro_batch >= len(ready):
            return False
        stage, at = self._stages[task.stage], task.stage
        start = max(self._free[group], ready[task.micro_batch])
        end = start + (stage.forward_s if forward else stage.backward_s)
        self._free[group] = end
        if not forward:
            self._backward_end[at].append(end)
            if at:
                seconds = self._stages[at - 1].send_s
                self._sent(self._back[at], self._returned[at - 1], at, at - 1, end, seconds)
            return True
        self._forward[at].append(start)
        if at == self._last:
            self._returned[at].append(end)
        else:
            self._sent(self._send[at], self._arrived[at + 1], at, at + 1, end, stage.send_s)
        return True

    def _sent(
        self,
        starts: list[float],
        arrivals: list[float],
        source: int,
        target: int,
        ready: float,
        seconds: float,
    ) -> None:
        link = source % self.groups, target % self.groups
        start = max(ready, self._links.get(link, 0.0))
        starts.append(start)
        self._links[link] = start + seconds
        arrivals.append(start + seconds)

    def timetable(self) -> Timetable:
        """Return the timetable, once no group can advance."""
        reduce, ends = [], list(self._free)
        for at, stage in enumerate(self._stages):
            group = at % self.groups
            reduce.append(ends[group])
            ends[group] += stage.all_reduce_s
        return Timetable(
            self._forward, self._backward_end, self._send, self._back, reduce, max(ends)
        )
