"""The timeline of a step: times of tasks, the bubble, and deadlocks.

Receives block: a task starts when its input has arrived. There are two kinds of sends. The sender
never waits for a buffered send. A rendezvous send ends when its receiver has reached the task that
takes it. ``max_pending_sends`` of them may be unfinished on a channel while their sender continues;
0 is MPI's blocking ``Ssend``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spbench_core.layout.stages import ModelLayout
from spbench_core.schedule.orders import Task, TaskKind, TaskOrder, TaskSeries
from spbench_core.schedule.simulation import RowTask, StepSimulation, TaskRow

UNIT_COSTS: Mapping[TaskKind, float] = {
    "forward": 1.0,
    "backward": 2.0,
    "data": 1.0,
    "weights": 1.0,
}
"""The time of a task of each kind, relative to a forward pass."""


class DeadlockError(RuntimeError):
    """Ranks wait for each other forever."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a step, in the unit of the tasks' costs.

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
        total = self.length * len(self.busy)
        return 1 - sum(self.busy) / total if total else 0.0


def find_input(task: Task, stages: int) -> Task | None:
    """Return the task that computes the input; None for the first stage's forward."""
    if task.kind == "forward":
        return replace(task, stage=task.stage - 1) if task.stage else None
    if task.kind == "weights":
        return replace(task, kind="data")
    if task.stage == stages - 1:
        return replace(task, kind="forward")
    return replace(task, stage=task.stage + 1)


def find_receiver(task: Task, stages: int) -> Task | None:
    """Return the task of another stage that takes this one's result, if any."""
    if task.kind == "weights":
        return None
    stage = task.stage + (1 if task.kind == "forward" else -1)
    if not 0 <= stage < stages:
        return None
    return Task(task.kind, task.micro_batch, stage, task.direction)


def simulate_orders(
    layout: ModelLayout,
    orders: Sequence[TaskOrder],
    costs: Mapping[TaskKind, float] = UNIT_COSTS,
    *,
    max_pending_sends: int | None = None,
) -> Timeline:
    """Simulate one replica's step.

    Args:
        layout: The ranks; those of a stage start each of its tasks together.
        orders: The tasks of each rank of the replica.
        costs: The time of a task of each kind.
        max_pending_sends: The number of sends of a channel between stages that may wait for their
            receiver while the sender continues; None: sends are buffered.

    Raises:
        DeadlockError: The step never ends; the message names a rank that waits.
    """
    builder = _RowBuilder(layout, orders, costs, max_pending_sends)
    row_tasks_by_rank = [builder.list_row_tasks(order) for order in orders]
    simulation = StepSimulation(
        [[row_task for row_task, _ in order] for order in row_tasks_by_rank], builder.rows, 0
    )
    simulation.run()
    for rank, order in enumerate(row_tasks_by_rank):
        next_index = simulation.next_index[rank]
        if next_index < len(order):
            raise DeadlockError(f"rank {rank} waits forever at {order[next_index][1]}")
    busy_by_rank = tuple(sum(costs[task.kind] for task in order) for order in orders)
    return Timeline(
        {task: builder.find_span(task) for order in orders for task in order}, busy_by_rank
    )


class _RowBuilder:
    """The tasks of all ranks as rows of a simulation.

    A rendezvous consists of two rows without work: the arrivals of the receiver at its tasks are
    the inputs of the waits of the sender.
    """

    def __init__(
        self,
        layout: ModelLayout,
        orders: Sequence[TaskOrder],
        costs: Mapping[TaskKind, float],
        max_pending_sends: int | None,
    ) -> None:
        self.rows: list[TaskRow] = []
        self._layout = layout
        self._max_pending_sends = max_pending_sends
        self._task_row_by_series: dict[TaskSeries, int] = {}
        self._arrival_row_by_series: dict[TaskSeries, int] = {}
        self._wait_row_by_series: dict[TaskSeries, int] = {}
        stages = len(layout.stages)
        task_by_series = {task.series: task for order in orders for task in order}
        micro_batches = (task.micro_batch for order in orders for task in order)
        self._micro_batches = 1 + max(micro_batches, default=-1)
        input_by_series = {
            series: find_input(task, stages) for series, task in task_by_series.items()
        }
        for series, task in task_by_series.items():
            needs_input = input_by_series[series] is not None
            self._task_row_by_series[series] = self._add_row(
                task, costs[task.kind], needs_input=needs_input
            )
        for series, input_task in input_by_series.items():
            if input_task is not None and input_task.series in task_by_series:
                self.rows[self._task_row_by_series[input_task.series]].feed(
                    self.rows[self._task_row_by_series[series]]
                )
        if max_pending_sends is None:
            return
        for series, task in task_by_series.items():
            self._arrival_row_by_series[series] = self._add_row(task, 0.0, needs_input=False)
        for series, task in task_by_series.items():
            receiver = find_receiver(task, stages)
            if receiver is not None:
                self._wait_row_by_series[series] = self._add_row(task, 0.0)
            if receiver is not None and receiver.series in task_by_series:
                self.rows[self._arrival_row_by_series[receiver.series]].feed(
                    self.rows[self._wait_row_by_series[series]]
                )

    def _add_row(self, task: Task, seconds: float, *, needs_input: bool = True) -> int:
        ranks = self._layout.list_stage_ranks(task.stage, 0, task.direction)
        devices = ranks if len(ranks) > 1 else ()
        self.rows.append(
            TaskRow(seconds, self._micro_batches, needs_input=needs_input, devices=devices)
        )
        return len(self.rows) - 1

    def list_row_tasks(self, order: TaskOrder) -> list[tuple[RowTask, Task]]:
        """Return a rank's tasks, arrivals and waits, each with its task."""
        if self._max_pending_sends is None:
            return [
                ((self._task_row_by_series[task.series], task.micro_batch), task) for task in order
            ]
        row_tasks = []
        sent_by_series: dict[TaskSeries, list[int]] = {}
        for task in order:
            series = task.series
            row_tasks.append(((self._arrival_row_by_series[series], task.micro_batch), task))
            row_tasks.append(((self._task_row_by_series[series], task.micro_batch), task))
            if series not in self._wait_row_by_series:
                continue
            sent_micro_batches = sent_by_series.setdefault(series, [])
            sent_micro_batches.append(task.micro_batch)
            if len(sent_micro_batches) > self._max_pending_sends:
                row_tasks.append(
                    (
                        (
                            self._wait_row_by_series[series],
                            sent_micro_batches[-1 - self._max_pending_sends],
                        ),
                        task,
                    )
                )
        return row_tasks

    def find_span(self, task: Task) -> tuple[float, float]:
        """Return the start and end of a task."""
        row = self.rows[self._task_row_by_series[task.series]]
        start = row.starts[task.micro_batch]
        return start, start + row.seconds
