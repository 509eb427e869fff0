"""List scheduling of two pipelines: free ranks take the most urgent task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout
from spbench_core.schedule.orders import Task, TaskKind, TaskOrder, TaskSeries
from spbench_core.schedule.timeline import UNIT_COSTS, find_input, find_receiver

MAX_PENDING_SENDS = 2
"""The number of unfinished sends from a stage to the next in one direction.

A rank waits for the last send but one before it starts the next. With one unfinished send, both
directions wait for each other so often that they are slower than one pipeline."""

Urgency = Callable[[bool, int, int], tuple[int, ...]]
"""Returns the priority of a task, from whether it is forward, its turn in its direction, and its
stage. The task with the least priority comes first."""


def _prioritize_stage(forward: bool, turn: int, stage: int) -> tuple[int, ...]:
    """Put backward first, because it frees memory, then the stages nearest the images."""
    return int(forward), stage, turn


def _prioritize_turn(forward: bool, turn: int, stage: int) -> tuple[int, ...]:
    """Put the earliest turn first, then backward, then the last stages."""
    return turn, int(forward), -stage


def list_orders(
    layout: ModelLayout, batches: Sequence[MicroBatch], *, forward_only: bool = False
) -> list[tuple[TaskOrder, ...]]:
    """Return several orders for each rank of a replica, to choose from.

    They differ in the priorities of tasks, and in the limit of micro-batches in flight per
    direction and stage. They were compared for 2 to 7 stages and 2 to 32 micro-batches. The best of
    the first three is never slower than 1f1b of one pipeline with as many micro-batches. The fourth
    keeps fewer micro-batches, and is the fastest for some layouts with tiles.

    Args:
        layout: Two mirrored pipelines.
        batches: The step's micro-batches.
        forward_only: Whether the step is inference. It then keeps nothing for backward.
    """
    stages = len(layout.stages)
    policies: tuple[tuple[Urgency, list[int]], ...] = (
        (_prioritize_stage, [stages] * stages),
        (_prioritize_stage, [stages + 1] * stages),
        (_prioritize_turn, [stages] * stages),
        (_prioritize_stage, [stages - stage for stage in range(stages)]),
    )
    return [
        _ListScheduler(layout, batches, *policy, forward_only).schedule() for policy in policies
    ]


class _ListScheduler:
    """A greedy list scheduler of one step.

    Args:
        layout: Two mirrored pipelines.
        batches: The step's micro-batches.
        urgency: The priority by which the next task is chosen among those that can start.
        limits: By stage, the limit of micro-batches in flight in a direction.
        forward_only: Whether the step is inference.
    """

    def __init__(
        self,
        layout: ModelLayout,
        batches: Sequence[MicroBatch],
        urgency: Urgency,
        limits: Sequence[int],
        forward_only: bool,
    ) -> None:
        stages = len(layout.stages)
        self.urgency = urgency
        self.limits = limits
        self.kinds: tuple[TaskKind, ...] = ("forward",) if forward_only else ("forward", "backward")
        numbers = {
            direction: [
                index for index, batch in enumerate(batches) if batch.direction == direction
            ]
            for direction in layout.directions
        }
        tasks = [
            Task(kind, 0, stage, direction)
            for kind in self.kinds
            for stage in range(stages)
            for direction in numbers
        ]
        self.series = [task.series for task in tasks]
        self.sender = {task.series: _get_series(find_input(task, stages)) for task in tasks}
        self.receiver = {task.series: _get_series(find_receiver(task, stages)) for task in tasks}
        self.ranks = {
            task.series: layout.list_stage_ranks(task.stage, 0, task.direction) for task in tasks
        }
        self.numbers = {task.series: numbers[task.direction] for task in tasks}
        self.ends: dict[TaskSeries, list[float]] = {series: [] for series in self.series}
        self.free_at = [0.0] * layout.ranks_per_replica

    def schedule(self) -> tuple[TaskOrder, ...]:
        """Return the order of each rank.

        The loop ends, because the oldest backward of a direction can always start.
        """
        orders: list[list[Task]] = [[] for _ in self.free_at]
        now = 0.0
        remaining = sum(map(len, self.numbers.values()))
        while remaining:
            while (series := self._best(now)) is not None:
                kind, stage, direction = series
                task = Task(kind, self.numbers[series][len(self.ends[series])], stage, direction)
                self.ends[series].append(now + UNIT_COSTS[kind])
                for rank in self.ranks[series]:
                    self.free_at[rank] = self.ends[series][-1]
                    orders[rank].append(task)
                remaining -= 1
            now = min((end for end in self.free_at if end > now), default=now)
        return tuple(map(tuple, orders))

    def _best(self, now: float) -> TaskSeries | None:
        able = (series for series in self.series if self._can_start(series, now))
        return min(able, key=self._key, default=None)

    def _can_start(self, series: TaskSeries, now: float) -> bool:
        turn = len(self.ends[series])
        if turn == len(self.numbers[series]):
            return False
        if any(self.free_at[rank] > now for rank in self.ranks[series]):
            return False
        sender = self.sender[series]
        if sender is not None:
            ends = self.ends[sender]
            if turn >= len(ends) or ends[turn] > now:
                return False
        return self._is_within_limits(series, turn)

    def _is_within_limits(self, series: TaskSeries, turn: int) -> bool:
        """Return whether the limits of pending sends and of memory allow the task."""
        receiver = self.receiver[series]
        if receiver is not None and turn - len(self.ends[receiver]) >= MAX_PENDING_SENDS:
            return False
        kind, stage, direction = series
        if kind == "backward" or len(self.kinds) == 1:
            return True
        return turn - len(self.ends["backward", stage, direction]) < self.limits[stage]

    def _key(self, series: TaskSeries) -> tuple[int, ...]:
        kind, stage, direction = series
        return (*self.urgency(kind == "forward", len(self.ends[series]), stage), direction)


def _get_series(task: Task | None) -> TaskSeries | None:
    return None if task is None else task.series
