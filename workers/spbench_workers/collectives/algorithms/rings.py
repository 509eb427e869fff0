"""Algorithms between neighbours: rings and the pipelined chain.

A ring begins with a reduce-scatter, in which every chunk passes all ranks once and each rank adds
to it. Then comes an all-gather, in which the chunks pass all ranks again and replace (Patarasuk and
Yuan, J. Parallel Distrib. Comput. 2009: no algorithm sends fewer bytes).

In the chain, chunks follow each other down to the first member, and back up as results.
"""

from __future__ import annotations

import math

from spbench_workers.collectives.algorithms.position import AlgorithmRank
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer

ELEMENTS_PER_LATENCY = 4096
"""Elements that a typical link sends in the time of one empty message: 16 KiB of float32."""


def ring(rank: AlgorithmRank, start: int = 0) -> Schedule:
    """Return the ring's steps; ``start`` is the first round's number.

    There are as many balanced chunks as ranks. A rank first sends the chunk with its index.
    """
    size = rank.size
    steps = []
    for turn in range(2 * (size - 1)):
        send, receive = _transfer_upwards(rank, turn, parts=size)
        steps.append(ScheduleStep(start + turn, (send,), (receive,)))
    return steps


def bidirectional_ring(rank: AlgorithmRank) -> Schedule:
    """Return the steps of two rings: half of each chunk goes up, half goes down.

    Two ranks have one neighbour and not two, so that they use the plain ring.
    """
    if rank.size <= 2:
        return ring(rank)
    steps = []
    for turn in range(2 * (rank.size - 1)):
        up_send, up_receive = _transfer_upwards(rank, turn, parts=2 * rank.size)
        down_send, down_receive = _transfer_downwards(rank, turn)
        steps.append(ScheduleStep(turn, (up_send, down_send), (up_receive, down_receive)))
    return steps


def _transfer_upwards(rank: AlgorithmRank, turn: int, parts: int) -> tuple[Transfer, Transfer]:
    """Return the transfers to the next member and from the previous one.

    With twice as many parts as ranks, these are the first halves of the ring's chunks.
    """
    size = rank.size
    me = rank.index
    chunk_stride = parts // size
    add = turn < size - 1
    send = rank.transfer_chunk(me + 1, (me - turn) % size * chunk_stride, parts)
    receive = rank.transfer_chunk(me - 1, (me - turn - 1) % size * chunk_stride, parts, add)
    return send, receive


def _transfer_downwards(rank: AlgorithmRank, turn: int) -> tuple[Transfer, Transfer]:
    """Return the transfers of second halves to the previous and from the next member."""
    size = rank.size
    me = rank.index
    # With an offset of three chunks, a rank sends, and skips, both halves of the same chunks. So no
    # rank sends more than in the plain ring.
    chunk = me + 3 + turn
    add = turn < size - 1
    send = rank.transfer_chunk(me - 1, chunk % size * 2 + 1, 2 * size)
    receive = rank.transfer_chunk(me + 1, (chunk + 1) % size * 2 + 1, 2 * size, add)
    return send, receive


def chain(rank: AlgorithmRank) -> Schedule:
    """Return the steps of the pipelined chain.

    In each round a chunk moves on by one member, one round behind the previous chunk. Its sum
    leaves member ``m`` downwards ``size-1-m`` rounds after the last member has sent it. The result
    leaves ``m`` upwards ``size-1+m`` rounds after it.
    """
    last = rank.size - 1
    me = rank.index
    chunks = compute_chunk_count(rank.size, rank.count, rank.chunks)
    steps = []
    for turn in range(2 * last + chunks - 1 if last else 0):
        down_chunk = turn - (last - me)
        up_chunk = turn - (last + me)
        sends = [(me - 1, down_chunk, False), (me + 1, up_chunk, False)]
        receives = [(me + 1, down_chunk + 1, True), (me - 1, up_chunk + 1, False)]
        steps.append(
            ScheduleStep(
                turn,
                _existing_transfers(rank, sends, chunks),
                _existing_transfers(rank, receives, chunks),
            )
        )
    return steps


def _existing_transfers(
    rank: AlgorithmRank, transfers: list[tuple[int, int, bool]], chunks: int
) -> tuple[Transfer, ...]:
    """Return the transfers ``(member, chunk, add)`` with an existing member and chunk."""
    return tuple(
        rank.transfer_chunk(member, chunk, chunks, add)
        for member, chunk, add in transfers
        if 0 <= member < rank.size and 0 <= chunk < chunks
    )


def compute_chunk_count(ranks: int, count: int, chunks: int | None) -> int:
    """Return the number of chunks, at most the number of elements.

    By default it is ``sqrt((2 depth - 1) M b / a)`` with ``depth = ranks - 1``. That is optimal if
    the two directions do not disturb each other, and a message costs as much as
    `ELEMENTS_PER_LATENCY` elements.
    """
    if chunks is None:
        chunks = round(math.sqrt(max(0, 2 * ranks - 3) * count / ELEMENTS_PER_LATENCY))
    return max(1, min(chunks, count))
