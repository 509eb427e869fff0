"""Every shape of a small problem, in turn."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations

from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.candidates import Shape


def count_shapes(states: int, ways: PlacementGraph) -> int:
    """Return how many shapes there are: cuts of so many states, and groups and rounds for them."""
    to: dict[Counts, Counter[int]] = defaultdict(Counter)
    total = 0
    # The groups lie in the order of what is in use after them, falling.
    for group in reversed(ways.groups):
        before = to[group.first] if any(group.first) else Counter({0: 1})
        for stages, count in before.items():
            if stages < states:
                to[group.last][stages + 1] += count
                total += count * sum(
                    math.comb(states - 1, each - 1) for each in _stages(stages + 1, states)
                )
    return total


def enumerate_shapes(states: int, ways: PlacementGraph) -> Iterator[Shape]:
    """Yield every shape."""
    empty = (0,) * len(ways.groups[0].first)
    for groups in _ways(ways, empty, states):
        for stages in _stages(len(groups), states):
            for cuts in combinations(range(1, states), stages - 1):
                yield Shape((*cuts, states), groups)


def _stages(groups: int, states: int) -> range:
    """Return how many stages so many groups can have: as many each; one group has one."""
    return range(groups, (states if groups > 1 else 1) + 1, groups)


def _ways(ways: PlacementGraph, used: Counts, most: int) -> Iterator[tuple[DeviceGroup, ...]]:
    """Yield the groups of up to so many stages, one after another."""
    if not most:
        return
    for at in ways.out_edges.get(used, ()):
        group = ways.groups[at]
        yield (group,)
        for following in _ways(ways, group.last, most - 1):
            yield (group, *following)
