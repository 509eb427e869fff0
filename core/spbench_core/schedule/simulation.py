"""Simulation of a step: the start and end of each task, the bubble, and deadlocks.

Receives block: a task starts when its input has come. Sends are of two kinds. A buffered send
is never waited for. A rendezvous send is over when its receiver has come to it; how many of them a
rank may leave behind on one channel before it waits is ``pending``, and 0 is MPI's blocking
``Ssend``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spbench_core.layout.stages import ModelLayout
from spbench_core.schedule.orders import Kind, Order, Task

Cost = Callable[[Task], float]


def unit_cost(task: Task) -> float:
    """Return 1 for a forward, and 2 for a backward: 1 for the gradients of data, 1 of weights."""
    return 2.0 if task.kind == "backward" else 1.0


class DeadlockError(RuntimeError):
    """Ranks wait for each other for ever."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a step: start and end of each task, in the unit of their costs.

    Attributes:
        spans: Start and end of each task.
        busy: The working time of each rank.
    """

    spans: dict[Task, tuple[float, float]]
    busy: tuple[float, ...]

    @property
    def length(self) -> float:
        """The time from the start of the first task to the end of the last."""
        return max((end for _, end in self.spans.values()), default=0.0)

    @property
    def bubble(self) -> float:
        """The bubble: the share of the ranks' time in which they wait."""
        whole = self.length * len(self.busy)
        return 1 - sum(self.busy) / whole if whole else 0.0


def before(task: Task, stages: int) -> Task | None:
    """Return the task whose result this one takes; None for the first stage's forward."""
    step: tuple[Kind, int] | None
    if task.kind == "forward":
        step = (task.kind, task.stage - 1) if task.stage else None
    elif task.kind == "weights":
        step = ("data", task.stage)
    else:
        last = task.stage == stages - 1
        step = ("forward", task.stage) if last else (task.kind, task.stage + 1)
    return Task(step[0], task.micro_batch, step[1], task.direction) if step else None


def after(task: Task, stages: int) -> Task | None:
    """Return the task of another stage that takes this one's result, if any."""
    if task.kind == "weights":
        return None
    stage = task.stage + (1 if task.kind == "forward" else -1)
    if not 0 <= stage < stages:
        return None
    return Task(task.kind, task.micro_batch, stage, task.direction)


def play(
    layout: ModelLayout,
    orders: Sequence[Order],
    cost: Cost = unit_cost,
    *,
    pending: int | None = None,
) -> Timeline:
    """Simulate one replica's step.

    Args:
        layout: The ranks; those of one stage start each of its tasks together.
        orders: By rank of the replica, its tasks.
        cost: Returns the time of a task.
        pending: How many sends of a channel from stage to stage may wait for their receiver while
            the sender goes on; None: sends are buffered.

    Raises:
        DeadlockError: The step never ends; the text names a rank that waits.
    """
    player = _Player(layout, orders, cost, pending)
    player.run()
    return Timeline(player.spans, tuple(sum(map(cost, order)) for order in orders))


Channel = tuple[str, int, int]
"""Messages that follow each other, named by kind, sending stage and direction."""


@dataclass(slots=True)
class _Player:
    layout: ModelLayout
    orders: Sequence[Order]
    cost: Cost
    pending: int | None
    spans: dict[Task, tuple[float, float]] = field(default_factory=dict)
    _reached: dict[Task, float] = field(default_factory=dict)
    _sent: dict[Channel, list[Task]] = field(default_factory=dict)
    _next: list[int] = field(init=False)
    _clock: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._next = [0] * len(self.orders)
        self._clock = [0.0] * len(self.orders)

    def run(self) -> None:
        while sum(self._advance(rank) for rank in range(len(self.orders))):
            pass
        for rank, order in enumerate(self.orders):
            if self._next[rank] < len(order):
                raise DeadlockError(f"rank {rank} waits for ever at {order[self._next[rank]]}")

    def _advance(self, rank: int) -> int:
        """Do all tasks that a rank can do for now; return their number."""
        done = 0
        while (task := self._task_of(rank)) is not None and self._do(task):
            done += 1
        return done

    def _task_of(self, rank: int) -> Task | None:
        order, at = self.orders[rank], self._next[rank]
        return order[at] if at < len(order) else None

    def _do(self, task: Task) -> bool:
        """Do a task and send its result, on all its ranks; False where something is missing."""
        ranks = self.layout.ranks_of(task.stage, 0, task.direction)
        if any(self._task_of(rank) != task for rank in ranks):
            return False
        if task not in self._reached:
            self._reached[task] = max(self._clock[rank] for rank in ranks)
        if task not in self.spans:
            earlier = before(task, len(self.layout.stages))
            if earlier is not None and earlier not in self.spans:
                return False
            start = max(self._reached[task], self.spans[earlier][1] if earlier else 0.0)
            self.spans[task] = (start, start + self.cost(task))
        free = self._sent_at(task)
        if free is None:
            return False
        for rank in ranks:
            self._clock[rank] = free
            self._next[rank] += 1
        return True

    def _sent_at(self, task: Task) -> float | None:
        """Return when the ranks are free to go on after sending the result; None: not yet."""
        end = self.spans[task][1]
        receiver = after(task, len(self.layout.stages))
        if receiver is None or self.pending is None:
            return end
        sent = self._sent.setdefault((task.kind, task.stage, task.direction), [])
        if receiver not in sent:
            sent.append(receiver)
        if len(sent) <= self.pending:
            return end
        waited_for = sent[-1 - self.pending]
        if waited_for not in self._reached:
            return None
        return max(end, self._reached[waited_for])
