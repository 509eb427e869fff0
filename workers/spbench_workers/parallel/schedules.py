"""In which order a stage works: gpipe, 1f1b and 1f1b-deep.

All do the same sums in the same order, leave ranks idle equally long, and differ in memory: in
gpipe a stage holds what it needs for backward of all micro-batches, in 1f1b of at most as many as
there are stages from it to the last. 1f1b-deep (DAPPLE's second warm-up policy) takes nearly twice
as many ahead, so that messages between stages have a round trip's time to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["forward", "backward"]
SCHEDULES = ("1f1b", "gpipe", "1f1b-deep")


@dataclass(frozen=True, slots=True)
class Task:
    """A stage's work on one micro-batch, in one direction of the model.

    Attributes:
        kind: Whether it goes to the loss or comes from it.
        micro_batch: Which one, counted over the whole step and both directions.
        stage: Which stage of its direction.
        direction: 1 in the mirrored pipeline.
    """

    kind: Kind
    micro_batch: int
    stage: int
    direction: int = 0


Order = tuple[Task, ...]
"""What a rank does in a step, from first to last."""


def stage_order(
    schedule: str,
    stage: int,
    stages: int,
    micro_batches: Sequence[int],
    *,
    direction: int = 0,
    forward_only: bool = False,
) -> Order:
    """Return what a stage does with micro-batches that pass through one pipeline.

    Args:
        schedule: One of `SCHEDULES`.
        stage: Which stage.
        stages: How many there are.
        micro_batches: Their numbers, in the order in which they come.
        direction: What the tasks say of it.
        forward_only: Whether nothing is to be learnt.

    Raises:
        ValueError: There is no such schedule.
    """
    forward = [Task("forward", index, stage, direction) for index in micro_batches]
    if forward_only:
        return tuple(forward)
    backward = [Task("backward", index, stage, direction) for index in micro_batches]
    if schedule == "gpipe":
        return (*forward, *backward)
    if schedule == "1f1b":
        return _one_forward_one_backward(forward, backward, stages - 1 - stage)
    if schedule == "1f1b-deep":
        return _one_forward_one_backward(forward, backward, 2 * (stages - 1 - stage))
    raise ValueError(f"{schedule!r} is none of {', '.join(SCHEDULES)}")


def _one_forward_one_backward(forward: list[Task], backward: list[Task], ahead: int) -> Order:
    """A forward before each backward, ``ahead`` micro-batches later: as many as lie beyond it."""
    ahead = min(ahead, len(forward))
    steady = zip(forward[ahead:], backward, strict=False)
    alternating = [task for both in steady for task in both]
    return (*forward[:ahead], *alternating, *backward[len(forward) - ahead :])


def ideal_bubble(stages: int, micro_batches: int) -> float:
    """Return the share of time that stages of equal work are idle, in gpipe as in 1f1b.

    It holds for any ratio of backward to forward, and for forward alone: the last stage waits
    ``stages - 1`` forwards for its first work, the first as many backwards for its last.
    """
    return (stages - 1) / (micro_batches + stages - 1)


def in_flight(order: Sequence[Task]) -> int:
    """Return for how many micro-batches a rank keeps what backward needs, at the most."""
    held = most = 0
    for task in order:
        held += 1 if task.kind == "forward" else -1
        most = max(most, held)
    return most
