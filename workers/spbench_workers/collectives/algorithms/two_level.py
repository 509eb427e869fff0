"""Two-level allreduce: binomial trees in groups, and a ring of the groups' first members.

For hosts of several ranks, where the ranks of a host are near each other.
"""

from __future__ import annotations

from spbench_workers.collectives.algorithms.place import AlgorithmRank, levels
from spbench_workers.collectives.algorithms.ring import ring
from spbench_workers.collectives.algorithms.tree import broadcast_down, reduce_up
from spbench_workers.collectives.schedule import Schedule


def two_level(place: AlgorithmRank) -> Schedule:
    """Return the steps.

    Groups are neighbours in the order of members, the last may be smaller.
    """
    group = group_size(place.size, place.group)
    number, within = divmod(place.index, group)
    leaders = place.members[::group]
    inside = AlgorithmRank(
        place.members[number * group : (number + 1) * group], within, place.count
    )
    depth = levels(group)
    steps = reduce_up(inside, depth)
    if within == 0:
        steps += ring(AlgorithmRank(leaders, number, place.count), start=depth)
    return steps + broadcast_down(inside, depth, start=depth + 2 * (len(leaders) - 1))


def group_size(ranks: int, group: int | None) -> int:
    """Return the ranks of a group, never more than there are.

    Where none is given it is the smallest power of two whose square is at least ``ranks``: full
    trees, and about as many groups as ranks in each.
    """
    if group is not None:
        return min(group, ranks)
    return min(1 << (levels(ranks) + 1) // 2, ranks)
