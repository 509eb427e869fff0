"""All states of a profile, like in PipeDream and HPGO: its antichains.

Source: PipeDream's graph.py (``antichain_dag``, ``topological_sort``) and HPGO's
torch_graph_py.rs (``prepare``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from spbench.planner.errors import PlannerError
from spbench.planner.profile.graph import LayerGraph, build_graph, iterate_bits
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.states import States, build_states, drop_unplanned_layers

Antichain = tuple[int, ...]
MAX_STATES = 4096
"""The most states of a graph that is searched."""


def find_antichain_states(profile: Profile) -> States:
    """Return every state of a profile in HPGO's order.

    States are the antichains (the last layers of a downset) that can be reached from the first
    source. The bytes that cross a cut are HPGO's: the outputs of the antichain, and of every layer
    before one of its members that is also read by a layer that is not before that member.

    Raises:
        PlannerError: No layer is left to plan, or there are more than `MAX_STATES` states.
    """
    planned = drop_unplanned_layers(profile)
    graph = build_graph(len(planned.layers), planned.edges)
    reachable, children = _find_reachable(planned, graph)
    names = [planned.layers[antichain[0]].description for antichain in reachable]
    order = _sort_topologically_by_name(names, children)

    position_by_node = {node: index for index, node in enumerate(order)}
    ancestors = [0] * len(order)
    for index, node in enumerate(order):
        for child in children[node]:
            ancestors[position_by_node[child]] |= ancestors[index] | 1 << index

    antichains = [reachable[node] for node in order]
    _check_all_reached(planned, graph, antichains)
    return build_states(
        planned,
        [names[node] for node in order],
        [_compute_downset_mask(graph, antichain) for antichain in antichains],
        ancestors,
        [
            _sum_output_bytes(planned, [*_find_layers_read_elsewhere(graph, antichain), *antichain])
            for antichain in antichains
        ],
    )


def _check_all_reached(profile: Profile, graph: LayerGraph, antichains: list[Antichain]) -> None:
    reached_mask = 0
    for antichain in antichains:
        reached_mask |= _compute_downset_mask(graph, antichain)
    for index, layer in enumerate(profile.layers):
        if not reached_mask >> index & 1:
            raise PlannerError(
                f"the layer {layer.name} of the profile {profile.name} is not joined to its first"
                f" one, {profile.layers[0].name}, from which mode hpgo sees all others; give the"
                " edges, or use mode best"
            )


def _find_reachable(profile: Profile, graph: LayerGraph) -> tuple[list[Antichain], list[list[int]]]:
    """Return the antichains in search order, and the successors of each by index."""
    first_node = next(node for node, mask in enumerate(graph.predecessor_masks) if not mask)
    antichains: list[Antichain] = [(first_node,)]
    index_by_mask = {1 << first_node: 0}
    children: list[list[int]] = []
    for antichain in antichains:  # grows during the loop
        successors = []
        for next_antichain in _generate_next_antichains(graph, antichain):
            antichain_mask = _make_mask(next_antichain)
            if antichain_mask not in index_by_mask:
                index_by_mask[antichain_mask] = len(antichains)
                antichains.append(next_antichain)
            successors.append(index_by_mask[antichain_mask])
        children.append(successors)
        if len(antichains) > MAX_STATES:
            raise PlannerError(
                f"the profile {profile.name} has more than {MAX_STATES} states, and mode hpgo"
                " searches all of them; use mode best"
            )
    return antichains, children


def _generate_next_antichains(graph: LayerGraph, antichain: Antichain) -> Iterable[Antichain]:
    """Yield the antichains in which a successor replaces one layer."""
    members = [*_find_layers_read_elsewhere(graph, antichain), *antichain]
    mask = _make_mask(members)
    for node in members:
        for successor in graph.successors[node]:
            if successor not in antichain and not graph.descendant_masks[successor] & mask:
                nodes = [successor if member == node else member for member in members]
                yield _find_maximal(graph, nodes)


def _find_maximal(graph: LayerGraph, nodes: list[int]) -> Antichain:
    """Return the nodes that are not before another one, each once."""
    mask = _make_mask(nodes)
    return tuple(dict.fromkeys(node for node in nodes if not graph.descendant_masks[node] & mask))


def _find_layers_read_elsewhere(graph: LayerGraph, antichain: Antichain) -> list[int]:
    """Return the layers before a member that are read outside of its ancestors."""
    read_elsewhere_mask = 0
    for member in antichain:
        inside_mask = graph.ancestor_masks[member] | 1 << member
        for node in iterate_bits(graph.ancestor_masks[member]):
            if graph.successor_masks[node] & ~inside_mask:
                read_elsewhere_mask |= 1 << node
    return list(iterate_bits(read_elsewhere_mask))


def _make_mask(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def _compute_downset_mask(graph: LayerGraph, antichain: Antichain) -> int:
    mask = _make_mask(antichain)
    for member in antichain:
        mask |= graph.ancestor_masks[member]
    return mask


def _sum_output_bytes(profile: Profile, nodes: Iterable[int]) -> float:
    return math.fsum(profile.layers[node].activation_bytes for node in nodes)


def _sort_topologically_by_name(names: list[str], children: list[list[int]]) -> list[int]:
    """Return the antichains in the topological order of a depth-first search by name.

    Antichains of the same name keep their order.
    """

    def sort_by_name(nodes: Iterable[int]) -> Iterator[int]:
        return iter(sorted(nodes, key=lambda node: names[node]))

    order: list[int] = []
    visited: set[int] = set()
    for root in sort_by_name(range(len(names))):
        stack = [(root, sort_by_name(children[root]))] if root not in visited else []
        visited.add(root)
        while stack:
            node, unvisited = stack[-1]
            child = next((child for child in unvisited if child not in visited), None)
            if child is None:
                order.append(node)
                stack.pop()
            else:
                visited.add(child)
                stack.append((child, sort_by_name(children[child])))
    return order[::-1]
