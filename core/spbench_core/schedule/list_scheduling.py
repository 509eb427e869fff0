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
        self.limit_by_stage = limits
        self.task_kinds: tuple[TaskKind, ...] = (
            ("forward",) if forward_only else ("forward", "backward")
        )
        batches_by_direction = {
            direction: [
                index for index, batch in enumerate(batches) if batch.direction == direction
            ]
            for direction in layout.directions
        }
        tasks = [
            Task(kind, 0, stage, direction)
            for kind in self.task_kinds
            for stage in range(stages)
            for direction in batches_by_direction
        ]
        self.all_series = [task.series for task in tasks]
        self.sender_by_series = {
            task.series: _get_series(find_input(task, stages)) for task in tasks
        }
        self.receiver_by_series = {
            task.series: _get_series(find_receiver(task, stages)) for task in tasks
        }
        self.ranks_by_series = {
            task.series: layout.list_stage_ranks(task.stage, 0, task.direction) for task in tasks
        }
        self.batches_by_series = {
            task.series: batches_by_direction[task.direction] for task in tasks
        }
        self.ends_by_series: dict[TaskSeries, list[float]] = {
            series: [] for series in self.all_series
        }
        self.free_at_by_rank = [0.0] * layout.ranks_per_replica

    def schedule(self) -> tuple[TaskOrder, ...]:
        """Return the order of each rank.

        The loop ends, because the oldest backward of a direction can always start.
        """
        tasks_by_rank: list[list[Task]] = [[] for _ in self.free_at_by_rank]
        now = 0.0
        remaining_tasks = sum(map(len, self.batches_by_series.values()))
        while remaining_tasks:
            while (series := self._choose_series(now)) is not None:
                kind, stage, direction = series
                task = Task(
                    kind,
                    self.batches_by_series[series][len(self.ends_by_series[series])],
                    stage,
                    direction,
                )
                self.ends_by_series[series].append(now + UNIT_COSTS[kind])
                for rank in self.ranks_by_series[series]:
                    self.free_at_by_rank[rank] = self.ends_by_series[series][-1]
                    tasks_by_rank[rank].append(task)
                remaining_tasks -= 1
            now = min((end for end in self.free_at_by_rank if end > now), default=now)
        return tuple(map(tuple, tasks_by_rank))

    def _choose_series(self, now: float) -> TaskSeries | None:
        startable = (series for series in self.all_series if self._can_start(series, now))
        return min(startable, key=self._get_priority, default=None)

    def _can_start(self, series: TaskSeries, now: float) -> bool:
        turn = len(self.ends_by_series[series])
        if turn == len(self.batches_by_series[series]):
            return False
        if any(self.free_at_by_rank[rank] > now for rank in self.ranks_by_series[series]):
            return False
        sender = self.sender_by_series[series]
        if sender is not None:
            sender_ends = self.ends_by_series[sender]
            if turn >= len(sender_ends) or sender_ends[turn] > now:
                return False
        return self._is_within_limits(series, turn)

    def _is_within_limits(self, series: TaskSeries, turn: int) -> bool:
        """Return whether the limits of pending sends and of memory allow the task."""
        receiver = self.receiver_by_series[series]
        if receiver is not None and turn - len(self.ends_by_series[receiver]) >= MAX_PENDING_SENDS:
            return False
        kind, stage, direction = series
        if kind == "backward" or len(self.task_kinds) == 1:
            return True
        return (
            turn - len(self.ends_by_series["backward", stage, direction])
            < self.limit_by_stage[stage]
        )

    def _get_priority(self, series: TaskSeries) -> tuple[int, ...]:
        kind, stage, direction = series
        return (
            *self.urgency(kind == "forward", len(self.ends_by_series[series]), stage),
            direction,
        )


def _get_series(task: Task | None) -> TaskSeries | None:
    return None if task is None else task.series
