"""Pipelined chain: chunks follow each other down to the first member, and back up as results."""

from __future__ import annotations

import math

from spbench_workers.collectives.algorithms.place import AlgorithmRank
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer

ELEMENTS_A_LATENCY = 4096
"""Elements that a usual link sends in the time that one message costs: 16 KiB of float32."""


def chain(place: AlgorithmRank) -> Schedule:
    """Return the steps: a chunk moves one member on in each round, one round behind the last.

    Its sum leaves member ``m`` downwards ``size-1-m`` rounds after the last member has sent its
    own, and the result leaves ``m`` upwards ``size-1+m`` rounds after.
    """
    last = place.size - 1
    me = place.index
    chunks = chunk_count(place.size, place.count, place.chunks)
    steps = []
    for turn in range(2 * last + chunks - 1 if last else 0):
        down = turn - (last - me)
        up = turn - (last + me)
        sends = [(me - 1, down, False), (me + 1, up, False)]
        receives = [(me + 1, down + 1, True), (me - 1, up + 1, False)]
        steps.append(
            ScheduleStep(turn, _there(place, sends, chunks), _there(place, receives, chunks))
        )
    return steps


def _there(
    place: AlgorithmRank, transfers: list[tuple[int, int, bool]], chunks: int
) -> tuple[Transfer, ...]:
    """Return the transfers ``(member, chunk, add)`` whose member and chunk exist."""
    return tuple(
        place.transfer_chunk(member, chunk, chunks, add)
        for member, chunk, add in transfers
        if 0 <= member < place.size and 0 <= chunk < chunks
    )


def chunk_count(ranks: int, count: int, chunks: int | None) -> int:
    """Return the number of chunks, never more than there are elements.

    Where none is given it is ``sqrt((2 depth - 1) M b / a)`` with ``depth = ranks - 1``: the best
    number where the two ways do not disturb each other, and a message costs as much as
    `ELEMENTS_A_LATENCY`.
    """
    if chunks is None:
        chunks = round(math.sqrt(max(0, 2 * ranks - 3) * count / ELEMENTS_A_LATENCY))
    return max(1, min(chunks, count))
