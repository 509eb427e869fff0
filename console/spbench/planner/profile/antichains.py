"""All states of a profile, as PipeDream and HPGO make them: the antichains of its graph.

Source: PipeDream's graph.py (``antichain_dag``, ``topological_sort``) and HPGO's
torch_graph_py.rs (``prepare``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spbench.planner.errors import PlannerError
from spbench.planner.profile.graph import LayerGraph, build_graph, iterate_bits
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.states import States, build_states, drop_unplanned_layers

MAX_STATES = 4096
"""A graph with more states than this is not searched as a whole."""


def find_antichain_states(profile: Profile) -> States:
    """Return every state of a profile in HPGO's order.

    States are the antichains (the last layers of a downset) that can be reached from the first
    source. What crosses a cut is HPGO's: the outputs of the antichain, and of every layer before
    one of its members that another layer reads which is not before that member.

    Raises:
        PlannerError: Nothing is left to plan, or there are more than `MAX_STATES` states.
    """
    left = drop_unplanned_layers(profile)
    graph = build_graph(len(left.layers), left.edges)
    found, children = _reachable(left, graph)
    order = _dag_order([left.layers[chain[0]].description for chain in found], children)
    place = {node: at for at, node in enumerate(order)}
    ancestors = [0] * len(order)
    for at, node in enumerate(order):
        for child in children[node]:
            ancestors[place[child]] |= ancestors[at] | 1 << at
    chains = [found[node] for node in order]
    _check_all_reached(left, graph, chains)
    return build_states(
        left,
        [left.layers[chain[0]].description for chain in chains],
        [_downset(graph, chain) for chain in chains],
        ancestors,
        [_outputs(left, [*_augmented(graph, chain), *chain]) for chain in chains],
    )


def _check_all_reached(profile: Profile, graph: LayerGraph, chains: list[Antichain]) -> None:
    reached = 0
    for chain in chains:
        reached |= _downset(graph, chain)
    for at, layer in enumerate(profile.layers):
        if not reached >> at & 1:
            raise PlannerError(
                f"the layer {layer.name} of the profile {profile.name} is not joined to its first"
                f" one, {profile.layers[0].name}, from which mode hpgo sees all others; give the"
                " edges, or use mode best"
            )


Antichain = tuple[int, ...]


class _Reached(NamedTuple):
    """The antichains found so far, in the order of the search, with the successors of each."""

    found: list[Antichain]
    children: list[list[int]]


def _reachable(profile: Profile, graph: LayerGraph) -> _Reached:
    first = next(at for at, before in enumerate(graph.predecessor_masks) if not before)
    found: list[Antichain] = [(first,)]
    place = {1 << first: 0}
    children: list[list[int]] = []
    for chain in found:  # grows as it goes
        after = []
        for following in _next_antichains(graph, chain):
            key = _mask(following)
            if key not in place:
                place[key] = len(found)
                found.append(following)
            after.append(place[key])
        children.append(after)
        if len(found) > MAX_STATES:
            raise PlannerError(
                f"the profile {profile.name} has more than {MAX_STATES} states, and mode hpgo"
                " searches all of them; use mode best"
            )
    return _Reached(found, children)


def _next_antichains(graph: LayerGraph, chain: Antichain) -> Iterable[Antichain]:
    """Yield the antichains that follow when one layer gives way to one of its successors."""
    members = [*_augmented(graph, chain), *chain]
    mask = _mask(members)
    for node in members:
        for following in graph.successors[node]:
            if following not in chain and not graph.descendant_masks[following] & mask:
                stepped = [following if member == node else member for member in members]
                yield _last_of(graph, stepped)


def _last_of(graph: LayerGraph, nodes: list[int]) -> Antichain:
    """Leave out what comes before another one, and what stands twice."""
    mask = _mask(nodes)
    return tuple(dict.fromkeys(node for node in nodes if not graph.descendant_masks[node] & mask))


def _augmented(graph: LayerGraph, chain: Antichain) -> list[int]:
    """Return the layers before a member that another layer reads, not before that member."""
    extra = 0
    for member in chain:
        inside = graph.ancestor_masks[member] | 1 << member
        for node in iterate_bits(graph.ancestor_masks[member]):
            if graph.successor_masks[node] & ~inside:
                extra |= 1 << node
    return list(iterate_bits(extra))


def _mask(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def _downset(graph: LayerGraph, chain: Antichain) -> int:
    mask = _mask(chain)
    for member in chain:
        mask |= graph.ancestor_masks[member]
    return mask


def _outputs(profile: Profile, nodes: Iterable[int]) -> float:
    return math.fsum(profile.layers[node].activation_bytes for node in nodes)


def _dag_order(names: list[str], children: list[list[int]]) -> list[int]:
    """Return the antichains in a topological order: depth first, by name, put before on leaving.

    Those with one name keep the order in which they were met.
    """

    def by_name(nodes: Iterable[int]) -> Iterator[int]:
        return iter(sorted(nodes, key=lambda node: names[node]))

    order: list[int] = []
    seen: set[int] = set()
    for root in by_name(range(len(names))):
        stack = [(root, by_name(children[root]))] if root not in seen else []
        seen.add(root)
        while stack:
            node, rest = stack[-1]
            child = next((each for each in rest if each not in seen), None)
            if child is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(child)
                stack.append((child, by_name(children[child])))
    return order[::-1]
