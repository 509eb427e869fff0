"""Binomial trees: reduce to the first member, then broadcast from it along the same edges.

It is caffe2's muji for any number of ranks: at level ``k`` a multiple of ``2^(k+1)`` takes in what
the member ``2^k`` further holds.
"""

from __future__ import annotations

from dataclasses import replace

from spbench_workers.allreduce.algorithms.place import AlgorithmRank, levels
from spbench_workers.allreduce.schedule import Schedule, ScheduleStep


def binomial(place: AlgorithmRank) -> Schedule:
    """Return the steps of a binomial reduce and a binomial broadcast."""
    depth = levels(place.size)
    return [*reduce_up(place, depth), *broadcast_down(place, depth, depth)]


def reduce_up(place: AlgorithmRank, depth: int) -> Schedule:
    """Return the steps to the first member; of ``depth`` levels, those this rank has a part in."""
    me, steps = place.index, []
    for level in range(depth):
        distance = 1 << level
        if me % (2 * distance) == distance:
            steps.append(ScheduleStep(level, sends=(place.whole(me - distance),)))
        elif me % (2 * distance) == 0 and me + distance < place.size:
            steps.append(ScheduleStep(level, receives=(place.whole(me + distance, add=True),)))
    return steps


def broadcast_down(place: AlgorithmRank, depth: int, start: int) -> Schedule:
    """Return the steps from the first member, backwards; ``start`` is the first round's number."""
    last = start + depth - 1
    return [
        ScheduleStep(
            last - step.round,
            sends=tuple(replace(transfer, add=False) for transfer in step.receives),
            receives=step.sends,
        )
        for step in reversed(reduce_up(place, depth))
    ]
