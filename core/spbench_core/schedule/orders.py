"""Pipeline schedules: gpipe, 1f1b, 1f1b-deep, zb-h1 for one stage a rank, interleaved for several.

All add up the same numbers in the same order. The first three have the same bubble, and differ in
memory: in gpipe a stage keeps the activations of all micro-batches until backward, in 1f1b of at
most as many as there are stages from it to the last. 1f1b-deep (DAPPLE's second warm-up policy)
takes nearly twice as many ahead, so that messages between stages have a round trip's time to come.

zb-h1 (Qi et al., "Zero bubble pipeline parallelism", ICLR 2024) computes the gradients of weights
apart from those of data, which the stage before waits for: they fill what would be idle.

interleaved (Megatron-LM's) is for ranks with a stage in each of several rounds over them: stages
are shorter, and so is the bubble; there are more messages for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeVar

TaskKind = Literal["forward", "backward", "data", "weights"]
"""A forward pass, to the loss, or a backward pass, from it: whole, or its two parts, the gradients
of data and then those of weights."""
StageSchedule = Literal["gpipe", "1f1b", "1f1b-deep", "zb-h1"]
"""The schedules in which each rank has one stage."""
Schedule = Literal[StageSchedule, "interleaved"]
INTERLEAVED: Final = "interleaved"
ZERO_BUBBLE: Final = "zb-h1"
STAGE_SCHEDULES: tuple[StageSchedule, ...] = ("1f1b", "gpipe", "1f1b-deep", ZERO_BUBBLE)
SCHEDULES: tuple[Schedule, ...] = (*STAGE_SCHEDULES, INTERLEAVED)


TaskSeries = tuple[TaskKind, int, int]
"""A stage's tasks of one kind and direction, which it does in their order."""


@dataclass(frozen=True, slots=True)
class Task:
    """A stage's work on one micro-batch, in one direction of the model.

    Attributes:
        kind: What is done.
        micro_batch: Its number, counted over the whole step and both directions.
        stage: The stage of its direction.
        direction: 1 in the mirrored pipeline.
    """

    kind: TaskKind
    micro_batch: int
    stage: int
    direction: int = 0

    @property
    def series(self) -> TaskSeries:
        """Its kind, stage and direction."""
        return self.kind, self.stage, self.direction


TaskOrder = tuple[Task, ...]
"""A rank's tasks of a step, from first to last."""

Pass = TypeVar("Pass")
"""A pass of one micro-batch through a stage, such as a `Task`."""


def stage_order(
    schedule: str,
    stage: int,
    stages: int,
    micro_batches: Sequence[int],
    *,
    direction: int = 0,
    forward_only: bool = False,
) -> TaskOrder:
    """Return the order of a stage's tasks, for micro-batches that pass through one pipeline.

    Args:
        schedule: One of `STAGE_SCHEDULES`.
        stage: The stage.
        stages: The number of stages.
        micro_batches: Their numbers, in the order in which they come.
        direction: The direction of the tasks.
        forward_only: Whether the step is inference.

    Raises:
        ValueError: There is no such schedule.
    """
    forward = [Task("forward", index, stage, direction) for index in micro_batches]
    if forward_only:
        return tuple(forward)
    if schedule == ZERO_BUBBLE:
        following = {kind: iter(micro_batches) for kind in ("forward", "data", "weights")}
        kinds = zero_bubble_kinds(stage, stages, len(forward))
        return tuple(Task(kind, next(following[kind]), stage, direction) for kind in kinds)
    backward = [Task("backward", index, stage, direction) for index in micro_batches]
    return tuple(order_passes(schedule, stage, stages, forward, backward))


def order_passes(
    schedule: str, stage: int, stages: int, forward: Sequence[Pass], backward: Sequence[Pass]
) -> list[Pass]:
    """Return the passes of a stage in the order of a schedule with whole backward passes.

    Args:
        schedule: One of `STAGE_SCHEDULES` but zb-h1.
        stage: The stage.
        stages: The number of stages.
        forward: Its forward passes, by micro-batch.
        backward: Its backward passes, by micro-batch.

    Raises:
        ValueError: There is no such schedule.
    """
    ahead = stage_in_flight(schedule, stage, stages, len(forward)) - 1
    return _one_forward_one_backward(forward, backward, ahead)


def stage_in_flight(schedule: str, stage: int, stages: int, micro_batches: int) -> int:
    """Return the most micro-batches in flight on a stage: between their forward and backward.

    Of zb-h1 that is until the gradients of weights, which are as many on every stage.

    Raises:
        ValueError: There is no such schedule.
    """
    following = stages - 1 - stage
    ahead = {
        "1f1b": following,
        "gpipe": micro_batches,
        "1f1b-deep": 2 * following,
        ZERO_BUBBLE: stages - 1,
    }
    if schedule not in ahead:
        raise ValueError(f"{schedule!r} is none of {', '.join(STAGE_SCHEDULES)}")
    return min(ahead[schedule] + 1, micro_batches)


def interleaved_order(
    position: int,
    stages: int,
    rounds: int,
    micro_batches: Sequence[int],
    *,
    forward_only: bool = False,
) -> TaskOrder:
    """Return the order of a rank that has a stage in each of several rounds over the ranks.

    Interleaved 1F1B of Narayanan et al., "Efficient large-scale language model training on GPU
    clusters using Megatron-LM" (SC21), section 2.2. Micro-batches go in groups, of as many as a
    round has stages: when a rank has done the last of a group, the first comes by again. Ahead of
    the first backward are two forwards for each stage that follows, and those of the group in all
    rounds but the last.

    Args:
        position: The rank's stage in a round.
        stages: The number of stages of a round.
        rounds: The number of rounds.
        micro_batches: Their numbers, in the order in which they come.
        forward_only: Whether the step is inference: then micro-batches may be any number.

    Raises:
        ValueError: Their number is no multiple of ``stages``. With a smaller last group ranks may
            deadlock.
    """
    if not forward_only and not can_interleave(len(micro_batches), stages):
        raise ValueError(f"{len(micro_batches)} micro-batches are no multiple of {stages} stages")
    firsts = range(0, len(micro_batches), stages)
    groups = [micro_batches[first : first + stages] for first in firsts]

    def tasks(kind: TaskKind, turns: Sequence[int]) -> list[Task]:
        return [
            Task(kind, index, turn * stages + position)
            for group in groups
            for turn in turns
            for index in group
        ]

    forward = tasks("forward", range(rounds))
    if forward_only:
        return tuple(forward)
    backward = tasks("backward", range(rounds)[::-1])
    ahead = 2 * (stages - 1 - position) + (rounds - 1) * stages
    return tuple(_one_forward_one_backward(forward, backward, ahead))


def can_interleave(micro_batches: int, stages: int) -> bool:
    """Return whether micro-batches come in groups of as many as a round has stages."""
    return micro_batches % stages == 0


@lru_cache(maxsize=4096)
def interleaved_in_flight(
    position: int, stages: int, rounds: int, micro_batches: int
) -> tuple[tuple[int, ...], ...]:
    """Return the micro-batches in flight on a rank of `interleaved_order`, by round.

    Of all combinations that a step comes to, those that no other exceeds in every round.
    """
    held = [0] * rounds
    seen = set()
    for task in interleaved_order(position, stages, rounds, range(micro_batches)):
        held[task.stage // stages] += 1 if task.kind == "forward" else -1
        if task.kind == "forward":
            seen.add(tuple(held))
    return tuple(each for each in sorted(seen) if not any(_exceeds(other, each) for other in seen))


def _exceeds(one: Sequence[int], other: Sequence[int]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _one_forward_one_backward(
    forward: Sequence[Pass], backward: Sequence[Pass], ahead: int
) -> list[Pass]:
    """Return 1F1B: ``ahead`` forwards as warm-up, then a forward before each backward."""
    ahead = min(ahead, len(forward))
    steady = zip(forward[ahead:], backward, strict=False)
    alternating = [task for both in steady for task in both]
    return [*forward[:ahead], *alternating, *backward[len(forward) - ahead :]]


@lru_cache(maxsize=64)
def zero_bubble_kinds(stage: int, stages: int, micro_batches: int) -> tuple[TaskKind, ...]:
    """Return the kinds of a stage's tasks in ZB-H1; those of one kind are by micro-batch.

    It is 1F1B in which as many gradients of weights wait as there are stages before, so that every
    stage keeps as many micro-batches as the first stage of 1f1b. Once there is no forward left each
    gap between gradients of data has one of those of weights.
    """
    ahead = min(stages - 1 - stage, micro_batches)
    steady = micro_batches - ahead
    waiting = min(stage, steady)
    middle: list[TaskKind] = ["forward", "data", "weights"]
    return (
        *middle[:1] * ahead,
        *middle[:2] * waiting,
        *middle * (steady - waiting),
        *middle[1:] * ahead,
        *middle[2:] * waiting,
    )


def count_trailing_weights(stage: int, stages: int, micro_batches: int) -> int:
    """Return how many gradients of weights ZB-H1 leaves for after a stage's last ones of data."""
    ahead = min(stages - 1 - stage, micro_batches)
    waiting = min(stage, micro_batches - ahead)
    return waiting + (waiting < micro_batches)


def ideal_bubble(stages: int, micro_batches: int, rounds: int = 1) -> float:
    """Return the ideal bubble: the share of time that ranks idle where stages have equal work.

    It is that of every schedule here but zb-h1, with ``stages`` of a round. It holds for any ratio
    of backward to forward, and for forward alone: the last rank waits ``stages - 1`` forwards for
    its first work, the first as many backwards for its last.
    """
    return (stages - 1) / (rounds * micro_batches + stages - 1)


def max_in_flight(order: Sequence[Task]) -> int:
    """Return the most micro-batches in flight on a rank: between their forward and backward."""
    held = most = 0
    for task in order:
        held += _HELD[task.kind]
        most = max(most, held)
    return most


_HELD: Final = {"forward": 1, "backward": -1, "data": 0, "weights": -1}
"""The micro-batches that a task adds to those whose activations are kept."""
