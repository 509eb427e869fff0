"""Plans as mode ``best`` searches them."""

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
    stage_in_flight,
)


def _by_memory(schedule: StageSchedule) -> int:
    return stage_in_flight(schedule, 0, 4, 100)


SCHEDULES = tuple(sorted(STAGE_SCHEDULES, key=_by_memory))
"""In the order of the memory they need: of equally fast ones the first is taken."""


class Shape(NamedTuple):
    """The shape of a plan: the cuts of the model, and the group of devices of each stage.

    Attributes:
        ends: The state after the last one of each stage.
        groups: The devices of the stages: of each, or of those of one round, whose groups have as
            many more.
    """

    ends: tuple[int, ...]
    groups: tuple[DeviceGroup, ...]

    @property
    def rounds(self) -> int:
        """Stages of each group: its virtual stages under an interleaved schedule."""
        return len(self.ends) // len(self.groups)

    @property
    def spans(self) -> list[tuple[int, int, DeviceGroup]]:
        """Return the first state, the state after the last, and the devices of each stage."""
        return list(zip((0, *self.ends[:-1]), self.ends, cycle(self.groups), strict=False))

    def schedules(self, micro_batches: int) -> tuple[Schedule, ...]:
        """Return the schedules in which it can be run."""
        if self.rounds > 1:
            return (INTERLEAVED,) if can_interleave(micro_batches, len(self.groups)) else ()
        return SCHEDULES[: 1 if len(self.ends) == 1 else None]


class Candidate(NamedTuple):
    """A plan: a shape, the samples of a micro-batch, and the order of the passes."""

    shape: Shape
    micro_batch: int
    schedule: Schedule
