"""The fold, with which an algorithm for a power of two ranks runs on any number of them.

Of ``n`` ranks, ``r`` are too many for the largest power of two. The first ``2r`` pair up: the even
one sends its elements to the odd one, is idle, and receives the result (Thakur, Rabenseifner and
Gropp, IJHPCA 2005, section 4).
"""

from __future__ import annotations

from collections.abc import Callable

from spbench_workers.collectives.algorithms.place import AlgorithmRank
from spbench_workers.collectives.schedule import Schedule, ScheduleStep

Core = Callable[[AlgorithmRank, int], Schedule]
"""An algorithm for a power of two ranks, of a position in it and the first round's number."""


def fold(place: AlgorithmRank, core: Core, rounds: int) -> Schedule:
    """Return the schedule of an algorithm of so many rounds, with the fold around it."""
    spare = place.size - place.power
    me = place.index
    if spare == 0:
        return core(place, 0)
    if me < 2 * spare and me % 2 == 0:
        gives = ScheduleStep(0, sends=(place.transfer_all(me + 1),))
        return [gives, ScheduleStep(rounds + 1, receives=(place.transfer_all(me + 1),))]
    members = [*place.members[1 : 2 * spare : 2], *place.members[2 * spare :]]
    if me >= 2 * spare:
        return core(AlgorithmRank(members, me - spare, place.count), 1)
    takes = ScheduleStep(0, receives=(place.transfer_all(me - 1, add=True),))
    gives_back = ScheduleStep(rounds + 1, sends=(place.transfer_all(me - 1),))
    return [takes, *core(AlgorithmRank(members, me // 2, place.count), 1), gives_back]
