"""Directed graphs of layers as bit masks: bit ``i`` of a mask is layer ``i``."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Edge = tuple[int, int]
"""The indices of a layer and of one that reads its output."""


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """An acyclic graph.

    Attributes:
        successors: The direct successors of each node, in the order of the edges.
        predecessor_masks: Masks of the direct predecessors.
        successor_masks: Masks of the direct successors.
        ancestor_masks: Masks of all predecessors.
        descendant_masks: Masks of all successors.
    """

    successors: tuple[tuple[int, ...], ...]
    predecessor_masks: tuple[int, ...]
    successor_masks: tuple[int, ...]
    ancestor_masks: tuple[int, ...]
    descendant_masks: tuple[int, ...]


def build_graph(count: int, edges: Sequence[Edge]) -> LayerGraph:
    """Return the graph of `count` nodes; the edges must not make a cycle."""
    successors: list[list[int]] = [[] for _ in range(count)]
    predecessor_masks = [0] * count
    successor_masks = [0] * count
    for source, target in edges:
        successors[source].append(target)
        predecessor_masks[target] |= 1 << source
        successor_masks[source] |= 1 << target
    ancestor_masks = [0] * count
    descendant_masks = [0] * count
    order = sort_topologically(count, edges)
    for node in order:
        for target in successors[node]:
            ancestor_masks[target] |= ancestor_masks[node] | 1 << node
    for node in reversed(order):
        for target in successors[node]:
            descendant_masks[node] |= descendant_masks[target] | 1 << target
    return LayerGraph(
        tuple(map(tuple, successors)),
        tuple(predecessor_masks),
        tuple(successor_masks),
        tuple(ancestor_masks),
        tuple(descendant_masks),
    )


def sort_topologically(count: int, edges: Iterable[Edge]) -> list[int]:
    """Return the nodes in topological order, with the lowest possible index first.

    Nodes on a cycle and their successors are left out.
    """
    successors: list[list[int]] = [[] for _ in range(count)]
    unmet_inputs = [0] * count
    for source, target in edges:
        successors[source].append(target)
        unmet_inputs[target] += 1
    ready = [node for node in range(count) if not unmet_inputs[node]]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for target in successors[node]:
            unmet_inputs[target] -= 1
            if not unmet_inputs[target]:
                heapq.heappush(ready, target)
    return order


def find_cycle(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the nodes of a cycle in their order; empty if there is none."""
    on_or_behind_cycle = set(range(count)).difference(sort_topologically(count, edges))
    if not on_or_behind_cycle:
        return []
    # Each node that is left has a predecessor that is left: going back must meet a node again.
    predecessor = {
        target: source for source, target in edges if {source, target} <= on_or_behind_cycle
    }
    path = [min(on_or_behind_cycle)]
    while predecessor[path[-1]] not in path:
        path.append(predecessor[path[-1]])
    return path[path.index(predecessor[path[-1]]) :][::-1]


def iterate_bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, rising."""
    while mask:
        lowest_bit = mask & -mask
        yield lowest_bit.bit_length() - 1
        mask ^= lowest_bit
