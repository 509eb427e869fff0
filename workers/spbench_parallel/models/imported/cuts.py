"""Cuts of a traced network into layers, where pipeline stages may end.

A cut hands over all live tensors: outputs of operators before it that operators after it read. So
skips may cross stages. Between two operators that multiply (convolutions, linear layers, products)
there is at most one cut. It is the last of those with the fewest live tensors, but before maps are
flattened. It is omitted if more tensors are live there than at the cuts on both sides, as within a
residual block. There is no cut if a live tensor has no row per image or is a map without channels
first, and none between two uses of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod

import torch
from torch import fx

from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.pixel_axes import MAP_AXES, find_pixel_axes
from spbench_parallel.models.imported.tracing import TracedNetwork


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """The operators of one layer.

    Attributes:
        first: The index of the first one.
        end: One past the last one.
        inputs: The nodes of its input tensors, in order.
        outputs: The nodes of its output tensors.
    """

    first: int
    end: int
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


def find_layer_spans(
    network: TracedNetwork, cuts: Sequence[int] | None = None
) -> tuple[LayerSpan, ...]:
    """Return the layers of a network, with cuts before these operators.

    By default it is cut at all possible positions.
    """
    live_by_position = _find_live_nodes(network)
    cut_positions = _find_cuts(network, live_by_position) if cuts is None else cuts
    bounds = pairwise((0, *cut_positions, len(network.operators)))
    return tuple(
        LayerSpan(first, end, live_by_position[first], live_by_position[end])
        for first, end in bounds
    )


def _find_cuts(network: TracedNetwork, live_by_position: Sequence[Sequence[fx.Node]]) -> list[int]:
    operator_count = len(network.operators)
    tied_ranges = list(_iter_tied_ranges(network))
    candidates = [
        position
        for position in range(1, operator_count)
        if all(
            node in network.shapes and _has_channels_first(network, node)
            for node in live_by_position[position]
        )
        and not any(first < position <= last for first, last in tied_ranges)
    ]
    multiplying_positions = [
        position for position in range(operator_count) if network.operators[position].multiply_adds
    ]
    candidates_by_gap = (
        [position for position in candidates if first < position <= second]
        for first, second in pairwise(multiplying_positions)
    )
    selected_positions = [
        _select_cut(network, live_by_position, gap_candidates)
        for gap_candidates in candidates_by_gap
        if gap_candidates
    ]
    return _drop_wide_cuts(
        selected_positions, [len(live_by_position[position]) for position in selected_positions]
    )


def _select_cut(
    network: TracedNetwork, live_by_position: Sequence[Sequence[fx.Node]], candidates: Sequence[int]
) -> int:
    """Return the last cut with the fewest live tensors, before they are flattened.

    Tiled stages can only end in maps. Therefore a cut with maps is preferred if they are not
    larger.
    """
    last_position = min(
        candidates, key=lambda position: (len(live_by_position[position]), -position)
    )
    if _are_maps(network, live_by_position[last_position]):
        return last_position
    fewest_live = len(live_by_position[last_position])
    live_values = _count_values(network, live_by_position[last_position])
    map_positions = [
        position
        for position in candidates
        if len(live_by_position[position]) == fewest_live
        and _count_values(network, live_by_position[position]) <= live_values
        and _are_maps(network, live_by_position[position])
    ]
    return max(map_positions, default=last_position)


def _are_maps(network: TracedNetwork, nodes: Sequence[fx.Node]) -> bool:
    shapes = (network.shapes[node] for node in nodes)
    return all(len(shape) == 3 and shape[1:] != (1, 1) for shape in shapes)


def _count_values(network: TracedNetwork, nodes: Sequence[fx.Node]) -> int:
    return sum(prod(network.shapes[node]) for node in nodes)


def _find_live_nodes(network: TracedNetwork) -> list[tuple[fx.Node, ...]]:
    """Return the live nodes before each operator, and after the last one.

    A live node is the output of an earlier operator that this operator, or a later one, reads.
    """
    operator_count = len(network.operators)
    live_by_position: list[list[fx.Node]] = [[] for _ in range(operator_count + 1)]
    for node, position in network.positions.items():
        reader_positions = [
            operator_count if user.op == "output" else network.positions[user]
            for user in node.users
        ]
        for index in range(position + 1, max(reader_positions, default=-1) + 1):
            live_by_position[index].append(node)
    return [tuple(nodes) for nodes in live_by_position]


def _has_channels_first(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a value at a cut is a map with channels first, or not a map."""
    axes = find_pixel_axes(network).get(node)
    shape = network.shapes[node]
    return axes == MAP_AXES or (axes is None and (len(shape) != 3 or shape[1:] == (1, 1)))


def _drop_wide_cuts(cuts: Sequence[int], live_counts: Sequence[int]) -> list[int]:
    """Return the cuts except those with more live tensors than on both sides.

    Args:
        cuts: The cuts.
        live_counts: The number of live tensors at each; before and after the network it is one.
    """
    cuts_by_count = [
        (count, [cut for cut, _ in group])
        for count, group in groupby(zip(cuts, live_counts, strict=True), key=lambda pair: pair[1])
    ]
    neighbour_counts = [1, *(count for count, _ in cuts_by_count), 1]
    remaining: list[int] = []
    for previous, (count, group), following in zip(
        neighbour_counts, cuts_by_count, neighbour_counts[2:], strict=False
    ):
        if not (count > previous and count > following):
            remaining += group
    return remaining


def _iter_tied_ranges(network: TracedNetwork) -> Iterator[tuple[int, int]]:
    """Yield the first and the last operator that use the same parameter or statistic."""
    positions = network.positions
    positions_by_tensor: dict[int, list[int]] = {}
    for node in network.graph.nodes:
        if node.op == "call_module":
            module = network.module.get_submodule(str(node.target))
            for tensor in (*module.parameters(), *module.buffers()):
                positions_by_tensor.setdefault(id(tensor), []).append(positions[node])
        elif node.op == "get_attr":
            attribute = get_attribute(network.module, str(node.target))
            if isinstance(attribute, torch.Tensor) and not network.is_constant(node):
                reader_positions = (positions[user] for user in node.users if user in positions)
                positions_by_tensor.setdefault(id(attribute), []).extend(reader_positions)
    for tensor_positions in positions_by_tensor.values():
        if max(tensor_positions, default=0) > min(tensor_positions, default=0):
            yield min(tensor_positions), max(tensor_positions)
