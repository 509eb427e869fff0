"""Candidate plans of mode ``best``: cuts, groups, micro-batch size and schedule."""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

from spbench.planner.cluster.placement import DeviceGroup
from spbench_core.schedule.orders import (
    INTERLEAVED,
    STAGE_SCHEDULES,
    Schedule,
    StageSchedule,
    can_interleave,
    count_in_flight,
)


def _rank_by_memory(schedule: StageSchedule) -> int:
    # A pipeline of 4 stages with 100 micro-batches is enough to order all schedules.
    return count_in_flight(schedule, 0, 4, 100)


SCHEDULES = tuple(sorted(STAGE_SCHEDULES, key=_rank_by_memory))
"""Schedules by the memory they need, least first: the first of equally fast ones is taken."""


class Shape(NamedTuple):
    """The shape of a plan: the cuts of the model, and the group of each stage.

    Attributes:
        ends: The state after the last one of each stage.
        groups: The groups of the stages of one round; all rounds have the same groups.
    """

    ends: tuple[int, ...]
    groups: tuple[DeviceGroup, ...]

    @property
    def rounds(self) -> int:
        """Stages per group: its virtual stages under an interleaved schedule."""
        return len(self.ends) // len(self.groups)

    @property
    def spans(self) -> list[tuple[int, int, DeviceGroup]]:
        """First state, state after the last, and group of each stage."""
        return list(zip((0, *self.ends[:-1]), self.ends, cycle(self.groups), strict=False))

    def list_schedules(self, micro_batches: int) -> tuple[Schedule, ...]:
        """Return the schedules that can run the shape with this number of micro-batches."""
        if self.rounds > 1:
            return (INTERLEAVED,) if can_interleave(micro_batches, len(self.groups)) else ()
        if len(self.ends) == 1:
            return SCHEDULES[:1]  # one stage has the same order of passes under all of them
        return SCHEDULES


class SizedShape(NamedTuple):
    """A shape, and the samples of a micro-batch."""

    shape: Shape
    micro_batch_size: int


class BoundedShape(NamedTuple):
    """A bound on the period in seconds, and the shape of the shortest path under it."""

    bound_s: float
    shape: Shape


class Candidate(NamedTuple):
    """A candidate plan: a shape, the samples of a micro-batch, and the schedule."""

    shape: Shape
    micro_batch_size: int
    schedule: Schedule
