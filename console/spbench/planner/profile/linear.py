"""A linear order of few states for mode ``best``, instead of all downsets.

The chain takes one layer at a time, in an order that the edges allow, with cuts that send little.
It minimises the mean of the bytes that cross a cut, over the compute time at which the cut is made.
A beam search keeps the best downsets of each size; with a beam as wide as the graph it is exact.
Then cuts that are worse than another one in every respect are left out.

The bytes that cross a cut here are the outputs that a later layer really reads, each once. They are
never more than HPGO's count in `antichains.find_antichain_states`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spbench.planner.profile.graph import LayerGraph, build_graph, iterate_bits
from spbench.planner.profile.layers import LayerProfile, Profile
from spbench.planner.profile.skips import find_skips
from spbench.planner.profile.states import States, build_states, drop_unplanned_layers

MAX_CUTS = 200
_MIN_BEAM = 16
_MAX_DOWNSETS = 100_000
"""Downsets that the beam search visits in all, unless the beam is at its minimum."""


def find_linear_states(profile: Profile, limit: int = MAX_CUTS) -> States:
    """Return at most `limit` states of a profile, each of which follows all before it.

    Raises:
        PlannerError: No layer is left to plan.
    """
    planned = drop_unplanned_layers(profile)
    graph = build_graph(len(planned.layers), planned.edges)
    order = _find_order(planned, graph)
    downsets = []
    crossing_bytes = []
    mask = 0
    for layer in order:
        mask |= 1 << layer
        downsets.append(mask)
        crossing_bytes.append(_compute_crossing_bytes(planned, graph, mask))
    cuts = _drop_dominated(planned, order, crossing_bytes)
    cuts = _limit_cuts(planned, order, cuts, crossing_bytes, limit)
    cut_downsets = [downsets[cut] for cut in cuts]
    return build_states(
        planned,
        [_format_state_name(planned.layers[order[cut]]) for cut in cuts],
        cut_downsets,
        [(1 << index) - 1 for index in range(len(cuts))],
        [crossing_bytes[cut] for cut in cuts],
        find_skips(planned, graph, cut_downsets),
    )


def _format_state_name(layer: LayerProfile) -> str:
    return layer.description or layer.name


def _compute_crossing_bytes(profile: Profile, graph: LayerGraph, mask: int) -> float:
    """Return the bytes of outputs in a downset that layers outside it read."""
    return math.fsum(
        profile.layers[node].activation_bytes
        for node in iterate_bits(mask)
        if graph.successor_masks[node] & ~mask
    )


class _Chain(NamedTuple):
    """A chain of cuts up to a downset.

    Attributes:
        area: The integral of the bytes that cross the cuts over the compute time.
        compute_ms: Milliseconds of the layers of the downset.
        crossing_bytes: Bytes that cross its last cut.
        ready_mask: Mask of the layers that can follow.
        previous: The chain without the last layer; None for the empty chain.
        layer: The last layer.
    """

    area: float
    compute_ms: float
    crossing_bytes: float
    ready_mask: int
    previous: _Chain | None
    layer: int


def _find_order(profile: Profile, graph: LayerGraph) -> list[int]:
    """Return the layers in the order of the best chain."""
    count = len(profile.layers)
    beam_width = max(_MIN_BEAM, _MAX_DOWNSETS // count)
    source_mask = sum(1 << node for node, mask in enumerate(graph.predecessor_masks) if not mask)
    chains = {0: _Chain(0.0, 0.0, 0.0, source_mask, None, -1)}
    for _ in range(count):
        longer: dict[int, _Chain] = {}
        for mask, chain in chains.items():
            for layer in iterate_bits(chain.ready_mask):
                _append_layer(profile, graph, longer, mask, chain, layer)
        chains = _keep_best(longer, beam_width)
    (chain,) = chains.values()
    order: list[int] = []
    while chain.previous is not None:
        order.append(chain.layer)
        chain = chain.previous
    return order[::-1]


def _append_layer(
    profile: Profile,
    graph: LayerGraph,
    chains: dict[int, _Chain],
    mask: int,
    chain: _Chain,
    layer: int,
) -> None:
    """Append a layer, and store the longer chain if it is the best to its downset."""
    downset = mask | 1 << layer
    layer_ms = profile.layers[layer].forward_ms + profile.layers[layer].backward_ms
    same_downset = chains.get(downset)
    if same_downset is None:
        crossing_bytes, ready_mask = _compute_cut_behind(profile, graph, chain, downset, layer)
    else:
        crossing_bytes = same_downset.crossing_bytes
        ready_mask = same_downset.ready_mask
    # Each of the two cuts around the layer counts for half of its time.
    area = chain.area + (chain.crossing_bytes + crossing_bytes) * layer_ms / 2.0
    if same_downset is None or area < same_downset.area:
        chains[downset] = _Chain(
            area, chain.compute_ms + layer_ms, crossing_bytes, ready_mask, chain, layer
        )


def _compute_cut_behind(
    profile: Profile, graph: LayerGraph, chain: _Chain, downset: int, layer: int
) -> tuple[float, int]:
    """Return the bytes across the cut behind a new layer, and the next layers' mask."""
    layers = profile.layers
    consumed_bytes = [
        layers[node].activation_bytes
        for node in iterate_bits(graph.predecessor_masks[layer])
        if not graph.successor_masks[node] & ~downset
    ]
    added_bytes = layers[layer].activation_bytes if graph.successor_masks[layer] else 0.0
    ready_mask = chain.ready_mask & ~(1 << layer)
    for node in graph.successors[layer]:
        if not graph.predecessor_masks[node] & ~downset:
            ready_mask |= 1 << node
    return chain.crossing_bytes + added_bytes - math.fsum(consumed_bytes), ready_mask


def _keep_best(chains: dict[int, _Chain], beam_width: int) -> dict[int, _Chain]:
    if len(chains) <= beam_width:
        return chains

    def rank_by_mean_crossing(downset: int) -> tuple[float, float]:
        chain = chains[downset]
        return (chain.area / chain.compute_ms if chain.compute_ms else 0.0, chain.crossing_bytes)

    best_downsets = sorted(chains, key=rank_by_mean_crossing)[:beam_width]
    return {downset: chains[downset] for downset in best_downsets}


def _drop_dominated(profile: Profile, order: list[int], crossing_bytes: list[float]) -> list[int]:
    """Return the cuts without those that another cut replaces at no cost.

    Two cuts without time and parameters between them differ only in the bytes that cross them.
    """
    cuts: list[int] = []
    last = len(order) - 1
    for cut, node in enumerate(order):
        layer = profile.layers[node]
        is_free = not (layer.forward_ms or layer.backward_ms or layer.parameter_bytes)
        if cuts and is_free:
            if cut < last and crossing_bytes[cut] > crossing_bytes[cuts[-1]]:
                continue
            cuts.pop()
        cuts.append(cut)
    return cuts


def _limit_cuts(
    profile: Profile, order: list[int], cuts: list[int], crossing_bytes: list[float], limit: int
) -> list[int]:
    """Return at most `limit` cuts: the cheapest in each equal share of the time."""
    if len(cuts) <= limit:
        return cuts
    layers = profile.layers
    total_ms = math.fsum(layer.forward_ms + layer.backward_ms for layer in layers)
    done_ms = 0.0
    cheapest_cut_by_share = dict[int, int]()
    allowed = set(cuts)
    for cut, node in enumerate(order):
        done_ms += layers[node].forward_ms + layers[node].backward_ms
        share_index = min(int(done_ms / total_ms * (limit - 1)), limit - 2)
        if cut not in allowed:
            continue
        if (
            share_index not in cheapest_cut_by_share
            or crossing_bytes[cut] < crossing_bytes[cheapest_cut_by_share[share_index]]
        ):
            cheapest_cut_by_share[share_index] = cut
    return sorted({*cheapest_cut_by_share.values(), cuts[-1]})
