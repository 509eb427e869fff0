"""Rabenseifner's algorithm: reduce-scatter by recursive halving, allgather by doubling.

Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005. It sends as few bytes as a ring, in few rounds.
"""

from __future__ import annotations

from spbench_core.layout.tiles import Interval, part_bounds
from spbench_workers.collectives.algorithms.fold import fold
from spbench_workers.collectives.algorithms.place import AlgorithmRank, levels
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer


def rabenseifner(place: AlgorithmRank) -> Schedule:
    """Return the steps; numbers of ranks that are no power of two are folded."""
    return fold(place, _halving_and_doubling, 2 * levels(place.power))


def _halving_and_doubling(place: AlgorithmRank, start: int) -> Schedule:
    """Halve from far to near: so what a rank keeps is always one window of neighbouring chunks."""
    depth = levels(place.size)
    steps = []
    for turn in range(2 * depth):
        halving = turn < depth
        distance = 1 << (depth - 1 - turn if halving else turn - depth)
        partner = place.index ^ distance
        mine = _window(place, place.index, distance)
        theirs = _window(place, partner, distance)
        sent, received = (theirs, mine) if halving else (mine, theirs)
        peer = place.members[partner]
        receive = Transfer(peer, *received, add=halving)
        steps.append(ScheduleStep(start + turn, (Transfer(peer, *sent),), (receive,)))
    return steps


def _window(place: AlgorithmRank, index: int, chunks: int) -> Interval:
    """Return the elements of a member's window of so many chunks: the one that holds its own."""
    return part_bounds(index // chunks, place.size // chunks, place.count)
