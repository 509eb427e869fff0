"""Flat allreduce: one member receives from all others in turn, and sends the result to each."""

from __future__ import annotations

from spbench_workers.collectives.algorithms.place import AlgorithmRank
from spbench_workers.collectives.schedule import Schedule, ScheduleStep


def flat(place: AlgorithmRank) -> Schedule:
    """Return the steps: a baseline, since one member sends and receives everything."""
    others = place.size - 1
    if place.index:
        gives = ScheduleStep(place.index - 1, sends=(place.transfer_all(0),))
        return [gives, ScheduleStep(others + place.index - 1, receives=(place.transfer_all(0),))]
    gather = [
        ScheduleStep(turn, receives=(place.transfer_all(turn + 1, add=True),))
        for turn in range(others)
    ]
    spread = [
        ScheduleStep(others + turn, sends=(place.transfer_all(turn + 1),)) for turn in range(others)
    ]
    return gather + spread
