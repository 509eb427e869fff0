"""Algorithms with one root: binomial, muji, flat, and two levels.

Binomial trees reduce to the first member and broadcast from it along the same edges. They are
caffe2's muji for any number of ranks: at level ``k`` each multiple of ``2^(k+1)`` adds the vector
of the member at distance ``2^k``.

muji defines trees for 2, 4 and 8 devices, and a fallback. The first member is always the root;
muji's ``gpu_indices`` is another order of the members. Its staging copy at the top of the tree for
8 is not a round here, since every message arrives in a separate buffer.

The two-level algorithm has binomial trees in groups, and a ring of the groups' first members. It is
for hosts with several ranks, since the ranks of a host are near each other.
"""

from __future__ import annotations

from dataclasses import replace

from spbench_workers.collectives.algorithms.position import AlgorithmRank, count_levels
from spbench_workers.collectives.algorithms.rings import ring
from spbench_workers.collectives.schedule import Schedule, ScheduleStep

Edge = tuple[int, int]
"""An edge of the tree: the member that sends its sum up, and the member that adds it."""

_TREES: dict[int, tuple[tuple[Edge, ...], ...]] = {
    2: (((1, 0),),),
    4: (((1, 0), (3, 2)), ((2, 0),)),
    8: (((1, 0), (3, 2), (5, 4), (7, 6)), ((2, 0), (6, 4)), ((4, 0),)),
}
"""The edges of muji's trees by level, by the number of ranks."""


def binomial(rank: AlgorithmRank) -> Schedule:
    """Return the steps of a binomial reduce and a binomial broadcast."""
    depth = count_levels(rank.size)
    return [*reduce_up(rank, depth), *broadcast_down(rank, depth, depth)]


def reduce_up(rank: AlgorithmRank, depth: int) -> Schedule:
    """Return this rank's steps of a reduce of ``depth`` levels to the first member."""
    me = rank.index
    steps = []
    for level in range(depth):
        distance = 1 << level
        if me % (2 * distance) == distance:
            steps.append(ScheduleStep(level, sends=(rank.transfer_all(me - distance),)))
        elif me % (2 * distance) == 0 and me + distance < rank.size:
            receive = rank.transfer_all(me + distance, add=True)
            steps.append(ScheduleStep(level, receives=(receive,)))
    return steps


def broadcast_down(rank: AlgorithmRank, depth: int, start: int) -> Schedule:
    """Return this rank's steps of a broadcast from the first member.

    The broadcast has ``depth`` levels, and its first round is ``start``.
    """
    last = start + depth - 1
    return [
        ScheduleStep(
            last - step.round,
            sends=tuple(replace(transfer, add=False) for transfer in step.receives),
            receives=step.sends,
        )
        for step in reversed(reduce_up(rank, depth))
    ]


def muji(rank: AlgorithmRank) -> Schedule:
    """Return the steps of muji's Allreduce, which depends on the number of devices."""
    tree = _TREES.get(rank.size)
    return flat(rank) if tree is None else _follow_tree(rank, tree)


def muji_2(rank: AlgorithmRank) -> Schedule:
    """Return the steps of the tree for two ranks."""
    return _follow_tree(rank, _TREES[2])


def muji_4(rank: AlgorithmRank) -> Schedule:
    """Return the steps of the tree for four ranks."""
    return _follow_tree(rank, _TREES[4])


def muji_8(rank: AlgorithmRank) -> Schedule:
    """Return the steps of the tree for eight ranks."""
    return _follow_tree(rank, _TREES[8])


def muji_fallback(rank: AlgorithmRank) -> Schedule:
    """Return the steps for numbers of ranks without a tree: those of `flat`."""
    return flat(rank)


def flat(rank: AlgorithmRank) -> Schedule:
    """Return the steps of a baseline: the root receives from each member in turn.

    Then it sends the result to each.
    """
    others = rank.size - 1
    if rank.index:
        send = ScheduleStep(rank.index - 1, sends=(rank.transfer_all(0),))
        receive = ScheduleStep(others + rank.index - 1, receives=(rank.transfer_all(0),))
        return [send, receive]
    gather = [
        ScheduleStep(turn, receives=(rank.transfer_all(turn + 1, add=True),))
        for turn in range(others)
    ]
    distribute = [
        ScheduleStep(others + turn, sends=(rank.transfer_all(turn + 1),)) for turn in range(others)
    ]
    return gather + distribute


def two_level(rank: AlgorithmRank) -> Schedule:
    """Return the steps of the two-level algorithm.

    Groups are consecutive members; the last group may be smaller.
    """
    group = group_size(rank.size, rank.group)
    group_number, index = divmod(rank.index, group)
    leaders = rank.members[::group]
    members = rank.members[group_number * group : (group_number + 1) * group]
    group_rank = AlgorithmRank(members, index, rank.count)
    depth = count_levels(group)
    steps = reduce_up(group_rank, depth)
    if index == 0:
        steps += ring(AlgorithmRank(leaders, group_number, rank.count), start=depth)
    return steps + broadcast_down(group_rank, depth, start=depth + 2 * (len(leaders) - 1))


def group_size(ranks: int, group: int | None) -> int:
    """Return the number of ranks in a group, at most all ranks.

    By default it is the smallest power of two with a square of at least ``ranks``: so trees are
    full, and there are about as many groups as ranks in each.
    """
    if group is not None:
        return min(group, ranks)
    return min(1 << (count_levels(ranks) + 1) // 2, ranks)


def _follow_tree(rank: AlgorithmRank, tree: tuple[tuple[Edge, ...], ...]) -> Schedule:
    steps = []
    for level, edges in enumerate(tree):
        steps += [_go_up(rank, level, edge) for edge in edges if rank.index in edge]
    for level, edges in enumerate(reversed(tree), start=len(tree)):
        steps += [_go_down(rank, level, edge) for edge in edges if rank.index in edge]
    return steps


def _go_up(rank: AlgorithmRank, level: int, edge: Edge) -> ScheduleStep:
    lower, upper = edge
    if rank.index == lower:
        return ScheduleStep(level, sends=(rank.transfer_all(upper),))
    return ScheduleStep(level, receives=(rank.transfer_all(lower, add=True),))


def _go_down(rank: AlgorithmRank, level: int, edge: Edge) -> ScheduleStep:
    lower, upper = edge
    if rank.index == upper:
        return ScheduleStep(level, sends=(rank.transfer_all(lower),))
    return ScheduleStep(level, receives=(rank.transfer_all(upper),))
