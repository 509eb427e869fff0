"""Algorithms between ranks at distances of powers of two.

Recursive doubling exchanges whole vectors, for small messages. Rabenseifner's algorithm is a
reduce-scatter by recursive halving and an allgather by doubling (Thakur, Rabenseifner and Gropp,
IJHPCA 2005). It sends as few bytes as a ring, in few rounds.
"""

from __future__ import annotations

from spbench_core.layout.tiles import Interval, compute_part_bounds
from spbench_workers.collectives.algorithms.position import AlgorithmRank, count_levels, fold
from spbench_workers.collectives.schedule import Schedule, ScheduleStep, Transfer


def recursive_doubling(rank: AlgorithmRank) -> Schedule:
    """Return the steps of recursive doubling, folded unless ranks are a power of two.

    Partners add the same two values in opposite order. The sums are equal in every bit, since IEEE
    addition commutes.
    """
    return fold(rank, _double, count_levels(rank.largest_power_of_two))


def _double(rank: AlgorithmRank, start: int) -> Schedule:
    steps = []
    for level in range(count_levels(rank.size)):
        partner = rank.index ^ (1 << level)
        send = rank.transfer_all(partner)
        receive = rank.transfer_all(partner, add=True)
        steps.append(ScheduleStep(start + level, (send,), (receive,)))
    return steps


def rabenseifner(rank: AlgorithmRank) -> Schedule:
    """Return the steps of Rabenseifner's algorithm, folded if necessary."""
    return fold(rank, _halve_and_double, 2 * count_levels(rank.largest_power_of_two))


def _halve_and_double(rank: AlgorithmRank, start: int) -> Schedule:
    """Halve from far to near, so that a rank keeps a window of adjacent chunks."""
    depth = count_levels(rank.size)
    steps = []
    for turn in range(2 * depth):
        halving = turn < depth
        distance = 1 << (depth - 1 - turn if halving else turn - depth)
        partner = rank.index ^ distance
        own_window = _window(rank, rank.index, distance)
        partner_window = _window(rank, partner, distance)
        send_window, receive_window = (
            (partner_window, own_window) if halving else (own_window, partner_window)
        )
        peer = rank.members[partner]
        receive = Transfer(peer, *receive_window, add=halving)
        steps.append(ScheduleStep(start + turn, (Transfer(peer, *send_window),), (receive,)))
    return steps


def _window(rank: AlgorithmRank, index: int, chunks: int) -> Interval:
    """Return the elements of a window of ``chunks`` chunks with a member's chunk."""
    return compute_part_bounds(index // chunks, rank.size // chunks, rank.count)
