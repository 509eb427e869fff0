"""Pipeline schedules: gpipe, 1f1b, 1f1b-deep, zb-h1 and interleaved.

All of them sum the same numbers in the same order. The first three have the same bubble, and differ
in memory. In gpipe a stage keeps the activations of all micro-batches until backward. In 1f1b it
keeps at most as many as there are stages from it to the last. 1f1b-deep (the second warm-up policy
of DAPPLE) keeps nearly twice as many, so that messages may take the time of a round trip.

zb-h1 (Qi et al., "Zero bubble pipeline parallelism", ICLR 2024) computes the gradients of weights
separately from those of data, which the previous stage waits for. They fill idle times.

interleaved (Megatron-LM) is for ranks with a stage in each of several rounds over the ranks. Stages
and the bubble are shorter, but there are more messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeVar

TaskKind = Literal["forward", "backward", "data", "weights"]
"""A forward pass, or a backward pass: either as a whole, or its two parts, the gradients of data
and then those of weights."""
StageSchedule = Literal["gpipe", "1f1b", "1f1b-deep", "zb-h1"]
"""The schedules in which each rank has one stage."""
Schedule = Literal[StageSchedule, "interleaved"]
INTERLEAVED: Final = "interleaved"
ZERO_BUBBLE: Final = "zb-h1"
STAGE_SCHEDULES: tuple[StageSchedule, ...] = ("1f1b", "gpipe", "1f1b-deep", ZERO_BUBBLE)
SCHEDULES: tuple[Schedule, ...] = (*STAGE_SCHEDULES, INTERLEAVED)


TaskSeries = tuple[TaskKind, int, int]
"""The tasks of a stage of one kind and direction, which run in the order of micro-batches."""


@dataclass(frozen=True, slots=True)
class Task:
    """A stage's work on one micro-batch, in one direction of the model.

    Attributes:
        kind: The kind of the work.
        micro_batch: Its number, counted over the whole step and both directions.
        stage: The stage in its direction.
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
"""The tasks of a rank in a step, from first to last."""

Pass = TypeVar("Pass")
"""A pass of one micro-batch through a stage, such as a `Task`."""


def list_stage_tasks(
    schedule: str,
    stage: int,
    stages: int,
    micro_batches: Sequence[int],
    *,
    direction: int = 0,
    forward_only: bool = False,
) -> TaskOrder:
    """Return the order of a stage's tasks for the micro-batches of one pipeline.

    Args:
        schedule: One of `STAGE_SCHEDULES`.
        stage: The stage.
        stages: The number of stages.
        micro_batches: Their numbers, in their order.
        direction: The direction of the tasks.
        forward_only: Whether the step is inference.

    Raises:
        ValueError: There is no such schedule.
    """
    forward = [Task("forward", index, stage, direction) for index in micro_batches]
    if forward_only:
        return tuple(forward)
    if schedule == ZERO_BUBBLE:
        next_batch_by_kind = {kind: iter(micro_batches) for kind in ("forward", "data", "weights")}
        kinds = list_zero_bubble_kinds(stage, stages, len(forward))
        return tuple(Task(kind, next(next_batch_by_kind[kind]), stage, direction) for kind in kinds)
    backward = [Task("backward", index, stage, direction) for index in micro_batches]
    return tuple(order_passes(schedule, stage, stages, forward, backward))


def order_passes(
    schedule: str, stage: int, stages: int, forward: Sequence[Pass], backward: Sequence[Pass]
) -> list[Pass]:
    """Order the passes of a stage by a schedule with whole backward passes.

    Args:
        schedule: One of `STAGE_SCHEDULES` except zb-h1.
        stage: The stage.
        stages: The number of stages.
        forward: Its forward passes, by micro-batch.
        backward: Its backward passes, by micro-batch.

    Raises:
        ValueError: There is no such schedule.
    """
    warmup_forwards = count_in_flight(schedule, stage, stages, len(forward)) - 1
    return _alternate_passes(forward, backward, warmup_forwards)


def count_in_flight(schedule: str, stage: int, stages: int, micro_batches: int) -> int:
    """Return the maximum of micro-batches between forward and backward on a stage.

    With zb-h1 they are counted until their gradients of weights, and are as many on every stage.

    Raises:
        ValueError: There is no such schedule.
    """
    later_stages = stages - 1 - stage
    ahead_by_schedule = {
        "1f1b": later_stages,
        "gpipe": micro_batches,
        "1f1b-deep": 2 * later_stages,
        ZERO_BUBBLE: stages - 1,
    }
    if schedule not in ahead_by_schedule:
        raise ValueError(f"{schedule!r} is none of {', '.join(STAGE_SCHEDULES)}")
    return min(ahead_by_schedule[schedule] + 1, micro_batches)


def list_interleaved_tasks(
    position: int,
    stages: int,
    rounds: int,
    micro_batches: Sequence[int],
    *,
    forward_only: bool = False,
) -> TaskOrder:
    """Return the order of a rank with a stage in each of several rounds.

    Interleaved 1F1B of Narayanan et al., "Efficient large-scale language model training on GPU
    clusters using Megatron-LM" (SC21), section 2.2. Micro-batches are in groups of as many as a
    round has stages: when a rank has finished the last of a group, the first one returns to it.
    Before the first backward come two forwards for each following stage, and the forwards of the
    group in all rounds except the last.

    Args:
        position: The rank's stage in a round.
        stages: The number of stages of a round.
        rounds: The number of rounds.
        micro_batches: Their numbers, in their order.
        forward_only: Whether the step is inference. Any number of micro-batches is then allowed.

    Raises:
        ValueError: Their number is not a multiple of ``stages``. With a smaller last group ranks
            may deadlock.
    """
    if not forward_only and not can_interleave(len(micro_batches), stages):
        raise ValueError(f"{len(micro_batches)} micro-batches are no multiple of {stages} stages")
    group_starts = range(0, len(micro_batches), stages)
    groups = [micro_batches[first : first + stages] for first in group_starts]

    def list_tasks(kind: TaskKind, round_indices: Sequence[int]) -> list[Task]:
        return [
            Task(kind, index, round_index * stages + position)
            for group in groups
            for round_index in round_indices
            for index in group
        ]

    forward = list_tasks("forward", range(rounds))
    if forward_only:
        return tuple(forward)
    backward = list_tasks("backward", range(rounds)[::-1])
    warmup_forwards = 2 * (stages - 1 - position) + (rounds - 1) * stages
    return tuple(_alternate_passes(forward, backward, warmup_forwards))


def can_interleave(micro_batches: int, stages: int) -> bool:
    """Return whether micro-batches form groups of as many as a round has stages."""
    return micro_batches % stages == 0


@lru_cache(maxsize=4096)
def list_in_flight_combinations(
    position: int, stages: int, rounds: int, micro_batches: int
) -> tuple[tuple[int, ...], ...]:
    """Return the micro-batches in flight on a rank, by round.

    The result has the maximal combinations of a step: no other one is as large in every round.
    """
    in_flight_by_round = [0] * rounds
    seen_counts = set()
    for task in list_interleaved_tasks(position, stages, rounds, range(micro_batches)):
        in_flight_by_round[task.stage // stages] += 1 if task.kind == "forward" else -1
        if task.kind == "forward":
            seen_counts.add(tuple(in_flight_by_round))
    return tuple(
        counts_by_round
        for counts_by_round in sorted(seen_counts)
        if not any(_exceeds(other, counts_by_round) for other in seen_counts)
    )


def _exceeds(counts: Sequence[int], other: Sequence[int]) -> bool:
    return counts != other and all(
        count >= other_count for count, other_count in zip(counts, other, strict=True)
    )


def _alternate_passes(
    forward: Sequence[Pass], backward: Sequence[Pass], warmup_forwards: int
) -> list[Pass]:
    """Return the warm-up forwards, then a forward before each backward."""
    warmup_forwards = min(warmup_forwards, len(forward))
    steady_pairs = zip(forward[warmup_forwards:], backward, strict=False)
    alternating = [task for pair in steady_pairs for task in pair]
    return [*forward[:warmup_forwards], *alternating, *backward[len(forward) - warmup_forwards :]]


@lru_cache(maxsize=64)
def list_zero_bubble_kinds(stage: int, stages: int, micro_batches: int) -> tuple[TaskKind, ...]:
    """Return the kinds of a stage's tasks in ZB-H1.

    It is 1F1B in which the gradients of weights are delayed by as many micro-batches as there are
    previous stages. So every stage keeps as many micro-batches as the first stage of 1f1b. After
    the last forward each gap between gradients of data has one gradient of weights.
    """
    warmup_forwards = min(stages - 1 - stage, micro_batches)
    steady_batches = micro_batches - warmup_forwards
    delayed_weights = min(stage, steady_batches)
    steady_kinds: list[TaskKind] = ["forward", "data", "weights"]
    return (
        *steady_kinds[:1] * warmup_forwards,
        *steady_kinds[:2] * delayed_weights,
        *steady_kinds * (steady_batches - delayed_weights),
        *steady_kinds[1:] * warmup_forwards,
        *steady_kinds[2:] * delayed_weights,
    )


def count_trailing_weights(stage: int, stages: int, micro_batches: int) -> int:
    """Count gradients of weights after a stage's last gradients of data (ZB-H1)."""
    warmup_forwards = min(stages - 1 - stage, micro_batches)
    delayed_weights = min(stage, micro_batches - warmup_forwards)
    # The last gradients of data are followed by their own gradients of weights, unless all of
    # these are delayed.
    return delayed_weights + 1 if delayed_weights < micro_batches else delayed_weights


def compute_ideal_bubble(stages: int, micro_batches: int, rounds: int = 1) -> float:
    """Return the ideal bubble: the idle share if stages have equal work.

    It is the bubble of every schedule here except zb-h1, with the ``stages`` of a round. It holds
    for any ratio of backward to forward, and for forward only: the last rank waits for ``stages -
    1`` forwards before its first task, and the first rank for as many backwards before its last.
    """
    return (stages - 1) / (rounds * micro_batches + stages - 1)


def count_max_in_flight(order: Sequence[Task]) -> int:
    """Return the maximum of micro-batches between forward and backward on a rank."""
    in_flight = maximum = 0
    for task in order:
        in_flight += _IN_FLIGHT_CHANGE_BY_KIND[task.kind]
        maximum = max(maximum, in_flight)
    return maximum


_IN_FLIGHT_CHANGE_BY_KIND: Final = {"forward": 1, "backward": -1, "data": 0, "weights": -1}
"""The change in the number of micro-batches with kept activations, by kind of task."""
