"""A linear order of few states for mode ``best``: one chain of cuts instead of all downsets.

The chain takes one layer at a time, in an order that the edges allow, so that the cuts on its way
send little: it looks for the least mean of what a cut sends, over the compute time at which it is
made. A beam keeps the best downsets of each size; with a beam as wide as the graph it is exact.
Then cuts that others beat are left out.

What crosses a cut here is what a later layer really reads, each output once. It is never more
than HPGO's count of `antichains.find_antichain_states`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spbench.planner.profile.graph import LayerGraph, build_graph, iterate_bits
from spbench.planner.profile.layers import LayerProfile, Profile
from spbench.planner.profile.skips import find_skips
from spbench.planner.profile.states import States, build_states, drop_unplanned_layers

MAX_CUTS = 200
_EFFORT = 100_000
"""Downsets that are looked at in all."""


def find_linear_states(profile: Profile, most: int = MAX_CUTS) -> States:
    """Return at most ``most`` states of a profile, each of which follows all before it.

    Raises:
        PlannerError: Nothing is left to plan.
    """
    left = drop_unplanned_layers(profile)
    graph = build_graph(len(left.layers), left.edges)
    order = _order(left, graph)
    downsets = []
    crossing = []
    mask = 0
    for layer in order:
        mask |= 1 << layer
        downsets.append(mask)
        crossing.append(_crossing(left, graph, mask))
    kept = _thinned(left, order, _undominated(left, order, crossing), crossing, most)
    chosen = [downsets[at] for at in kept]
    return build_states(
        left,
        [_name(left.layers[order[at]]) for at in kept],
        chosen,
        [(1 << at) - 1 for at in range(len(kept))],
        [crossing[at] for at in kept],
        find_skips(left, graph, chosen),
    )


def _name(layer: LayerProfile) -> str:
    return layer.description or layer.name


def _crossing(profile: Profile, graph: LayerGraph, mask: int) -> float:
    """Return the bytes that layers outside a downset read of those in it."""
    return math.fsum(
        profile.layers[node].activation_bytes
        for node in iterate_bits(mask)
        if graph.successor_masks[node] & ~mask
    )


class _Way(NamedTuple):
    """A chain of cuts up to a downset: what they send, each for as long as it is the next one."""

    area: float
    compute: float
    crossing: float
    ready: int
    before: _Way | None
    layer: int


def _order(profile: Profile, graph: LayerGraph) -> list[int]:
    """Return the layers in the order in which the chain takes them."""
    count = len(profile.layers)
    width = max(16, _EFFORT // count)
    ready = sum(1 << node for node, before in enumerate(graph.predecessor_masks) if not before)
    ways = {0: _Way(0.0, 0.0, 0.0, ready, None, -1)}
    for _ in range(count):
        found: dict[int, _Way] = {}
        for mask, way in ways.items():
            for layer in iterate_bits(way.ready):
                _go(profile, graph, found, mask, way, layer)
        ways = _best(found, width)
    (way,) = ways.values()
    order: list[int] = []
    at: _Way | None = way
    while at is not None and at.before is not None:
        order.append(at.layer)
        at = at.before
    return order[::-1]


def _go(
    profile: Profile,
    graph: LayerGraph,
    found: dict[int, _Way],
    mask: int,
    way: _Way,
    layer: int,
) -> None:
    """Take one more layer, and keep the chain if it is the best to its downset."""
    reached = mask | 1 << layer
    took = profile.layers[layer].forward_ms + profile.layers[layer].backward_ms
    known = found.get(reached)
    if known is None:
        crossing, ready = _moved(profile, graph, way, reached, layer)
    else:
        crossing = known.crossing
        ready = known.ready
    # A cut stands for half of the time to each of its neighbours.
    area = way.area + (way.crossing + crossing) * took / 2.0
    if known is None or area < known.area:
        found[reached] = _Way(area, way.compute + took, crossing, ready, way, layer)


def _moved(
    profile: Profile, graph: LayerGraph, way: _Way, reached: int, layer: int
) -> tuple[float, int]:
    """Return what a cut sends after a further layer, and which layers can follow."""
    layers = profile.layers
    gone = [
        layers[node].activation_bytes
        for node in iterate_bits(graph.predecessor_masks[layer])
        if not graph.successor_masks[node] & ~reached
    ]
    added = layers[layer].activation_bytes if graph.successor_masks[layer] else 0.0
    ready = way.ready & ~(1 << layer)
    for node in graph.successors[layer]:
        if not graph.predecessor_masks[node] & ~reached:
            ready |= 1 << node
    return way.crossing + added - math.fsum(gone), ready


def _best(found: dict[int, _Way], width: int) -> dict[int, _Way]:
    if len(found) <= width:
        return found

    def mean(item: tuple[int, _Way]) -> tuple[float, float]:
        way = item[1]
        return (way.area / way.compute if way.compute else 0.0, way.crossing)

    return dict(sorted(found.items(), key=mean)[:width])


def _undominated(profile: Profile, order: list[int], crossing: list[float]) -> list[int]:
    """Leave out cuts that another one beats for nothing.

    Two cuts with no time and no parameters between them are alike but for what they send.
    """
    kept: list[int] = []
    last = len(order) - 1
    for at, node in enumerate(order):
        layer = profile.layers[node]
        free = not (layer.forward_ms or layer.backward_ms or layer.parameter_bytes)
        if kept and free:
            if at < last and crossing[at] > crossing[kept[-1]]:
                continue
            kept.pop()
        kept.append(at)
    return kept


def _thinned(
    profile: Profile, order: list[int], kept: list[int], crossing: list[float], most: int
) -> list[int]:
    """Keep at most ``most`` cuts: in each of so many shares of the time the cheapest one."""
    if len(kept) <= most:
        return kept
    layers = profile.layers
    total = math.fsum(layer.forward_ms + layer.backward_ms for layer in layers)
    done = 0.0
    best = dict[int, int]()
    places = set(kept)
    for at, node in enumerate(order):
        done += layers[node].forward_ms + layers[node].backward_ms
        share = min(int(done / total * (most - 1)), most - 2)
        if at in places and (share not in best or crossing[at] < crossing[best[share]]):
            best[share] = at
    return sorted({*best.values(), kept[-1]})
