"""Timetables of a step: when each pass, message and all-reduce of every stage runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from spbench_core.schedule.orders import (
    ZERO_BUBBLE,
    Kind,
    StageSchedule,
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
