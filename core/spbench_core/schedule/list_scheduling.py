"""List scheduling: a step of two pipelines played, each free rank taking the most urgent task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout
from spbench_core.schedule.orders import Kind, Order, Task
from spbench_core.schedule.simulation import after, before, unit_cost

PENDING = 2
"""Sends of one way from stage to stage that may be left unwaited for.

A rank waits for the last but one before it sends the next. One would be too few: both directions
then wait for each other so often that they are slower than one pipeline."""

Urgency = Callable[[bool, int, int], tuple[int, ...]]
"""From whether it is forward, its turn in its direction, and its stage; the least goes first."""

Line = tuple[Kind, int, int]
"""A stage's tasks of one kind and direction, which it does in their order."""


def _by_stage(forward: bool, turn: int, stage: int) -> tuple[int, ...]:
    """Backward, since it frees memory; then what is nearest to the images."""
    return int(forward), stage, turn


def _by_turn(forward: bool, turn: int, stage: int) -> tuple[int, ...]:
    """What has waited longest; then backward; then what is nearest to the loss."""
    return turn, int(forward), -stage


def listed_orders(
    layout: ModelLayout, batches: Sequence[MicroBatch], *, forward_only: bool = False
) -> list[tuple[Order, ...]]:
    """Return what each rank of a replica does, in several ways to choose from.

    They differ in what is urgent, and in how many micro-batches of a direction a stage may keep
    what backward needs for. Found by trial over 2 to 7 stages and 2 to 32 micro-batches: one of
    the first three is never slower than 1f1b of one pipeline with as many micro-batches; the
    fourth holds less, and is the quickest for some layouts in tiles.

    Args:
        layout: Two mirrored pipelines.
        batches: The step's micro-batches.
        forward_only: Whether nothing is to be learnt; nothing is then kept.
    """
    stages = len(layout.stages)
    ways: tuple[tuple[Urgency, list[int]], ...] = (
        (_by_stage, [stages] * stages),
        (_by_stage, [stages + 1] * stages),
        (_by_turn, [stages] * stages),
        (_by_stage, [stages - stage for stage in range(stages)]),
    )
    return [_Lister(layout, batches, *way, forward_only).orders() for way in ways]


class _Lister:
    """One play of a step.

    Args:
        layout: Two mirrored pipelines.
        batches: The step's micro-batches.
        urgency: Which of the tasks that could start does.
        limits: By stage, of how many micro-batches of a direction it may keep what backward needs.
        forward_only: Whether nothing is to be learnt.
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
        self.kinds: tuple[Kind, ...] = ("forward",) if forward_only else ("forward", "backward")
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
        self.lines = [_line(task) for task in lines]
        self.sender = {_line(task): _line_of(before(task, stages)) for task in lines}
        self.receiver = {_line(task): _line_of(after(task, stages)) for task in lines}
        self.ranks = {_line(task): layout.ranks_of(task.stage, 0, task.direction) for task in lines}
        self.numbers = {_line(task): numbers[task.direction] for task in lines}
        self.ends: dict[Line, list[float]] = {line: [] for line in self.lines}
        self.free_at = [0.0] * layout.ranks_a_replica

    def orders(self) -> tuple[Order, ...]:
        """Play it. It ends: a direction's oldest backward can always start, and frees others."""
        orders: list[list[Task]] = [[] for _ in self.free_at]
        now = 0.0
        to_do = sum(map(len, self.numbers.values()))
        while to_do:
            while (line := self._best(now)) is not None:
                kind, stage, direction = line
                task = Task(kind, self.numbers[line][len(self.ends[line])], stage, direction)
                self.ends[line].append(now + unit_cost(task))
                for rank in self.ranks[line]:
                    self.free_at[rank] = self.ends[line][-1]
                    orders[rank].append(task)
                to_do -= 1
            now = min((end for end in self.free_at if end > now), default=now)
        return tuple(map(tuple, orders))

    def _best(self, now: float) -> Line | None:
        able = (line for line in self.lines if self._can_start(line, now))
        return min(able, key=self._key, default=None)

    def _can_start(self, line: Line, now: float) -> bool:
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

    def _has_room(self, line: Line, turn: int) -> bool:
        """Whether the receiver of the result and memory have room for it."""
        receiver = self.receiver[line]
        if receiver is not None and turn - len(self.ends[receiver]) >= PENDING:
            return False
        kind, stage, direction = line
        if kind == "backward" or len(self.kinds) == 1:
            return True
        return turn - len(self.ends["backward", stage, direction]) < self.limits[stage]

    def _key(self, line: Line) -> tuple[int, ...]:
        kind, stage, direction = line
        return (*self.urgency(kind == "forward", len(self.ends[line]), stage), direction)


def _line(task: Task) -> Line:
    return task.kind, task.stage, task.direction


def _line_of(task: Task | None) -> Line | None:
    return None if task is None else _line(task)
