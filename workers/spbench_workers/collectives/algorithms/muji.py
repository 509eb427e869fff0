"""The trees of caffe2's muji, as they were drawn for 2, 4 and 8 devices, and its fallback.

The first member is always the root: another order of the members is muji's ``gpu_indices``. Its
staging copy at the top of the tree for 8 is no round here, since every message arrives in a buffer
of its own.
"""

from __future__ import annotations

from spbench_workers.collectives.algorithms.flat import flat
from spbench_workers.collectives.algorithms.place import AlgorithmRank
from spbench_workers.collectives.schedule import Schedule, ScheduleStep

Edge = tuple[int, int]
"""An edge of the tree: the member that sends its sum up, and the one that adds it."""

_TREES: dict[int, tuple[tuple[Edge, ...], ...]] = {
    2: (((1, 0),),),
    4: (((1, 0), (3, 2)), ((2, 0),)),
    8: (((1, 0), (3, 2), (5, 4), (7, 6)), ((2, 0), (6, 4)), ((4, 0),)),
}


def muji(place: AlgorithmRank) -> Schedule:
    """Return the steps of muji's Allreduce, which chooses by the number of devices."""
    tree = _TREES.get(place.size)
    return flat(place) if tree is None else _drawn(place, tree)


def muji_2(place: AlgorithmRank) -> Schedule:
    """Return the steps of the tree for two ranks."""
    return _drawn(place, _TREES[2])


def muji_4(place: AlgorithmRank) -> Schedule:
    """Return the steps of the tree for four ranks."""
    return _drawn(place, _TREES[4])


def muji_8(place: AlgorithmRank) -> Schedule:
    """Return the steps of the tree for eight ranks."""
    return _drawn(place, _TREES[8])


def muji_fallback(place: AlgorithmRank) -> Schedule:
    """Return the steps for the numbers without a tree: all to the root, one by one, and back."""
    return flat(place)


def _drawn(place: AlgorithmRank, tree: tuple[tuple[Edge, ...], ...]) -> Schedule:
    steps = []
    for level, edges in enumerate(tree):
        steps += [_up(place, level, edge) for edge in edges if place.index in edge]
    for level, edges in enumerate(reversed(tree), start=len(tree)):
        steps += [_down(place, level, edge) for edge in edges if place.index in edge]
    return steps


def _up(place: AlgorithmRank, level: int, edge: Edge) -> ScheduleStep:
    lower, upper = edge
    if place.index == lower:
        return ScheduleStep(level, sends=(place.transfer_all(upper),))
    return ScheduleStep(level, receives=(place.transfer_all(lower, add=True),))


def _down(place: AlgorithmRank, level: int, edge: Edge) -> ScheduleStep:
    lower, upper = edge
    if place.index == upper:
        return ScheduleStep(level, sends=(place.transfer_all(lower),))
    return ScheduleStep(level, receives=(place.transfer_all(upper),))
