"""Binomial trees: reduce to the first member, then broadcast from it along the same edges.

It is caffe2's muji for any number of ranks: at level ``k`` a multiple of ``2^(k+1)`` adds the
vector of the member ``2^k`` further.
"""

from __future__ import annotations

from dataclasses import replace

from spbench_workers.collectives.algorithms.place import AlgorithmRank, levels
from spbench_workers.collectives.schedule import Schedule, ScheduleStep


def binomial(place: AlgorithmRank) -> Schedule:
    """Return the steps of a binomial reduce and a binomial broadcast."""
    depth = levels(place.size)
    return [*reduce_up(place, depth), *broadcast_down(place, depth, depth)]


def reduce_up(place: AlgorithmRank, depth: int) -> Schedule:
    """Return this rank's steps of a reduce of ``depth`` levels to the first member."""
    me = place.index
    steps = []
    for level in range(depth):
        distance = 1 << level
        if me % (2 * distance) == distance:
            steps.append(ScheduleStep(level, sends=(place.transfer_all(me - distance),)))
        elif me % (2 * distance) == 0 and me + distance < place.size:
            steps.append(
                ScheduleStep(level, receives=(place.transfer_all(me + distance, add=True),))
            )
    return steps


def broadcast_down(place: AlgorithmRank, depth: int, start: int) -> Schedule:
    """Return this rank's steps of a broadcast from the first member, from round ``start`` on."""
    last = start + depth - 1
    return [
        ScheduleStep(
            last - step.round,
            sends=tuple(replace(transfer, add=False) for transfer in step.receives),
            receives=step.sends,
        )
        for step in reversed(reduce_up(place, depth))
    ]
