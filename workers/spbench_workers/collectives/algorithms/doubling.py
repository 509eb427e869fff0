"""Recursive doubling: whole vectors between ranks at distance 1, 2, 4, ....

For small messages.
"""

from __future__ import annotations

from spbench_workers.collectives.algorithms.fold import fold
from spbench_workers.collectives.algorithms.place import AlgorithmRank, levels
from spbench_workers.collectives.schedule import Schedule, ScheduleStep


def recursive_doubling(place: AlgorithmRank) -> Schedule:
    """Return the steps; numbers of ranks that are no power of two are folded.

    Partners add the same two values, one the other way round: the sums are the same in every bit,
    since IEEE addition commutes.
    """
    return fold(place, _doubling, levels(place.power))


def _doubling(place: AlgorithmRank, start: int) -> Schedule:
    steps = []
    for level in range(levels(place.size)):
        partner = place.index ^ (1 << level)
        send = place.transfer_all(partner)
        receive = place.transfer_all(partner, add=True)
        steps.append(ScheduleStep(start + level, (send,), (receive,)))
    return steps
