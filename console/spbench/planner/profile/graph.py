"""Directed graphs of layers as bit masks: bit ``i`` of a mask stands for layer ``i``."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Edge = tuple[int, int]
"""From one layer, by its index, to another."""


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """An acyclic graph.

    Attributes:
        after: The direct successors of each node, in the order of the edges.
        direct_before: Masks of the direct predecessors.
        direct_after: Masks of the direct successors.
        before: Masks of all predecessors.
        beyond: Masks of all successors.
    """

    successors: tuple[tuple[int, ...], ...]
    predecessor_masks: tuple[int, ...]
    successor_masks: tuple[int, ...]
    ancestor_masks: tuple[int, ...]
    descendant_masks: tuple[int, ...]


def build_graph(count: int, edges: Sequence[Edge]) -> LayerGraph:
    """Return the graph of ``count`` nodes; the edges must make no cycle."""
    after: list[list[int]] = [[] for _ in range(count)]
    direct_before = [0] * count
    direct_after = [0] * count
    for source, target in edges:
        after[source].append(target)
        direct_before[target] |= 1 << source
        direct_after[source] |= 1 << target
    before = [0] * count
    beyond = [0] * count
    order = topological_order(count, edges)
    for node in order:
        for target in after[node]:
            before[target] |= before[node] | 1 << node
    for node in reversed(order):
        for target in after[node]:
            beyond[node] |= beyond[target] | 1 << target
    return LayerGraph(
        tuple(map(tuple, after)),
        tuple(direct_before),
        tuple(direct_after),
        tuple(before),
        tuple(beyond),
    )


def topological_order(count: int, edges: Iterable[Edge]) -> list[int]:
    """Return the nodes in an order that the edges allow, the lowest index first.

    Nodes on a cycle, and those behind one, are left out.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in edges:
        after[source].append(target)
        waits[target] += 1
    ready = [node for node in range(count) if not waits[node]]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for target in after[node]:
            waits[target] -= 1
            if not waits[target]:
                heapq.heappush(ready, target)
    return order


def find_cycle(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the nodes of one cycle in their order; empty where there is none."""
    left = set(range(count)).difference(topological_order(count, edges))
    if not left:
        return []
    # Each node that is left has a predecessor that is left: going back must meet a node again.
    origin = {target: source for source, target in edges if {source, target} <= left}
    path = [min(left)]
    while origin[path[-1]] not in path:
        path.append(origin[path[-1]])
    return path[path.index(origin[path[-1]]) :][::-1]


def iterate_bits(mask: int) -> Iterator[int]:
    """Yield the places of the bits that are set, rising."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
