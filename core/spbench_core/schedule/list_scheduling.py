"""List scheduling of two pipelines: each free rank takes the most urgent task in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout
from spbench_core.schedule.orders import Task, TaskKind, TaskOrder, TaskSeries
from spbench_core.schedule.timeline import UNIT_COSTS, find_input, find_receiver

MAX_PENDING_SENDS = 2
"""Sends from stage to stage, in one direction, that may be left unwaited for.

A rank waits for the last but one before it sends the next. One would be too few: both directions
then wait for each other so often that they are slower than one pipeline."""

Urgency = Callable[[bool, int, int], tuple[int, ...]]
"""The priority of a task, from whether it is forward, its turn in its direction, and its stage; the
least goes first."""


def _by_stage(forward: bool, turn: int, stage: int) -> tuple[int, ...]:
    """Return a priority: backward first, as it frees memory; then the stage nearest the images."""
    return int(forward), stage, turn


def _by_turn(forward: bool, turn: int, stage: int) -> tuple[int, ...]:
    """Return a priority: the earliest turn first, then backward, then the last stage."""
    return turn, int(forward), -stage


def list_orders(
    layout: ModelLayout, batches: Sequence[MicroBatch], *, forward_only: bool = False
) -> list[tuple[TaskOrder, ...]]:
    """Return several orders of each rank of a replica, to choose from.

    They differ in which task is urgent, and in the limit on micro-batches in flight of a direction
    on a stage. Found by trial over 2 to 7 stages and 2 to 32 micro-batches: one of
    the first three is never slower than 1f1b of one pipeline with as many micro-batches; the
    fourth holds less, and is the quickest for some layouts in tiles.

    Args:
        layout: Two mirrored pipelines.
        batches: The step's micro-batches.
        forward_only: Whether the step is inference; nothing is then kept for backward.
    """
    stages = len(layout.stages)
    policies: tuple[tuple[Urgency, list[int]], ...] = (
        (_by_stage, [stages] * stages),
        (_by_stage, [stages + 1] * stages),
        (_by_turn, [stages] * stages),
        (_by_stage, [stages - stage for stage in range(stages)]),
    )
    return [_Lister(layout, batches, *policy, forward_only).orders() for policy in policies]


class _Lister:
    """A greedy list scheduler of one step.

    Args:
        layout: Two mirrored pipelines.
        batches: The step's micro-batches.
        urgency: The priority by which one of the tasks that could start is taken.
        limits: By stage, the most micro-batches of a direction in flight.
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
        lines = [
            Task(kind, 0, stage, direction)
            for kind in self.kinds
            for stage in range(stages)
            for direction in numbers
        ]
        self.lines = [task.series for task in lines]
        self.sender = {task.series: _line_of(find_input(task, stages)) for task in lines}
        self.receiver = {task.series: _line_of(find_receiver(task, stages)) for task in lines}
        self.ranks = {
            task.series: layout.list_stage_ranks(task.stage, 0, task.direction) for task in lines
        }
        self.numbers = {task.series: numbers[task.direction] for task in lines}
        self.ends: dict[TaskSeries, list[float]] = {line: [] for line in self.lines}
        self.free_at = [0.0] * layout.ranks_per_replica

    def orders(self) -> tuple[TaskOrder, ...]:
        """Return the orders. It ends: a direction's oldest backward can always start."""
        orders: list[list[Task]] = [[] for _ in self.free_at]
        now = 0.0
        to_do = sum(map(len, self.numbers.values()))
        while to_do:
            while (line := self._best(now)) is not None:
                kind, stage, direction = line
                task = Task(kind, self.numbers[line][len(self.ends[line])], stage, direction)
                self.ends[line].append(now + UNIT_COSTS[kind])
                for rank in self.ranks[line]:
                    self.free_at[rank] = self.ends[line][-1]
                    orders[rank].append(task)
                to_do -= 1
            now = min((end for end in self.free_at if end > now), default=now)
        return tuple(map(tuple, orders))

    def _best(self, now: float) -> TaskSeries | None:
        able = (line for line in self.lines if self._can_start(line, now))
        return min(able, key=self._key, default=None)

    def _can_start(self, line: TaskSeries, now: float) -> bool:
        turn = len(self.ends[line])
        if turn == len(self.numbers[line]):
            return False
        if any(self.free_at[rank] > now for rank in self.ranks[line]):
            return False
        sender = self.sender[line]
        if sender is not None:
            ends = self.ends[sender]
            if turn >= len(ends) or ends[turn] > now:
                return False
        return self._has_room(line, turn)

    def _has_room(self, line: TaskSeries, turn: int) -> bool:
        """Whether the receiver of the result, and memory, have room for the task."""
        receiver = self.receiver[line]
        if receiver is not None and turn - len(self.ends[receiver]) >= MAX_PENDING_SENDS:
            return False
        kind, stage, direction = line
        if kind == "backward" or len(self.kinds) == 1:
            return True
        return turn - len(self.ends["backward", stage, direction]) < self.limits[stage]

    def _key(self, line: TaskSeries) -> tuple[int, ...]:
        kind, stage, direction = line
        return (*self.urgency(kind == "forward", len(self.ends[line]), stage), direction)


def _line_of(task: Task | None) -> TaskSeries | None:
    return None if task is None else task.series
