"""Ring allreduce: each rank sends to its neighbour only.

First a reduce-scatter, in which every chunk goes once around and each rank adds to it, then an
all-gather, in which it goes around again and replaces (Patarasuk and Yuan, J. Parallel Distrib.
Comput. 2009: the least bytes that are possible).
"""

from __future__ import annotations

from spbench_workers.collectives.algorithms.place import AlgorithmRank
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer


def ring(place: AlgorithmRank, start: int = 0) -> Schedule:
    """Return the ring's steps; ``start`` is the first round's number.

    As many chunks as ranks, with balanced bounds. A rank sends the chunk of its own index first.
    """
    size = place.size
    steps = []
    for turn in range(2 * (size - 1)):
        send, receive = _upwards(place, turn, parts=size)
        steps.append(ScheduleStep(start + turn, (send,), (receive,)))
    return steps


def bidirectional_ring(place: AlgorithmRank) -> Schedule:
    """Return the steps of two rings at once: half of each chunk goes up, the other half down.

    Two ranks have one neighbour and not two, and there it is the plain ring.
    """
    if place.size <= 2:
        return ring(place)
    steps = []
    for turn in range(2 * (place.size - 1)):
        up_send, up_receive = _upwards(place, turn, parts=2 * place.size)
        down_send, down_receive = _downwards(place, turn)
        steps.append(ScheduleStep(turn, (up_send, down_send), (up_receive, down_receive)))
    return steps


def _upwards(place: AlgorithmRank, turn: int, parts: int) -> tuple[Transfer, Transfer]:
    """Return the transfers to the next member and from the one before.

    With twice as many parts as ranks, these are the first halves of the ring's chunks.
    """
    size = place.size
    me = place.index
    share = parts // size
    add = turn < size - 1
    send = place.transfer_chunk(me + 1, (me - turn) % size * share, parts)
    return send, place.transfer_chunk(me - 1, (me - turn - 1) % size * share, parts, add)


def _downwards(place: AlgorithmRank, turn: int) -> tuple[Transfer, Transfer]:
    """Return the transfers to the member before and from the next: the second halves."""
    size = place.size
    me = place.index
    # Begun three chunks further, a rank sends and leaves out both halves of the same chunks: then
    # no rank sends more than in the plain ring.
    chunk = me + 3 + turn
    add = turn < size - 1
    send = place.transfer_chunk(me - 1, chunk % size * 2 + 1, 2 * size)
    return send, place.transfer_chunk(me + 1, (chunk + 1) % size * 2 + 1, 2 * size, add)
