"""Strategies to compute an imported network's operators on images in tiles.

A tensor is either in tiles, or whole and the same on every rank. Images are in tiles, and so is
every map of more than one pixel. Convolutions, pools, resizing and normalisation have counterparts
over tiles. Pixelwise operators run unchanged. The mean over all pixels is whole. All other
operators are computed on gathered maps, on every rank alike, and their output is cut into tiles
again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid, compute_part_bounds
from spbench_core.layout.window import expand_pair
from spbench_parallel.models.imported.counterparts import find_counterpart, find_module
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.pixel_axes import (
    MAP_AXES,
    find_pixel_axes,
    get_axis_order,
    get_map_size,
    is_tiled,
    regroups_channels,
)
from spbench_parallel.models.imported.pointwise import (
    get_arguments,
    is_pointwise,
    selects_channels,
    splits_channels,
)
from spbench_parallel.models.imported.tracing import Operator, TracedNetwork


class TileStrategy(Enum):
    """How an operator is computed if images are in tiles.

    Attributes:
        NUMBER: It returns a size or number, not a tensor.
        TILES: By its counterpart over tiles.
        PIXELS: Unchanged, on tiles and on replicated values.
        GROUPS: Unchanged except for the sizes of rows and columns: it splits or joins channels.
        MEAN: As the mean over all pixels.
        WHOLE: Unchanged, on replicated values.
        GATHERED: Unchanged, on gathered maps.
    """

    NUMBER = "number"
    TILES = "tiles"
    PIXELS = "pixels"
    GROUPS = "groups"
    MEAN = "mean"
    WHOLE = "whole"
    GATHERED = "gathered"


_PIXEL_AXES = (2, 3)  # of a batch of maps


def choose_strategies(
    network: TracedNetwork, grid: Grid, operators: Sequence[Operator] | None = None
) -> dict[fx.Node, TileStrategy]:
    """Return the strategies of operators for a grid of tiles; default: all operators."""
    chosen_operators = network.operators if operators is None else operators
    return {
        operator_.node: strategy
        for operator_, strategy in _iter_strategies(network, grid, chosen_operators)
    }


def _iter_strategies(
    network: TracedNetwork, grid: Grid, operators: Sequence[Operator]
) -> Iterator[tuple[Operator, TileStrategy]]:
    for candidate in operators:
        if candidate.is_number:
            yield candidate, TileStrategy.NUMBER
        else:
            yield candidate, _choose_strategy(network, grid, candidate)


def find_gathered_operators(network: TracedNetwork, grid: Grid) -> frozenset[fx.Node]:
    """Return the operators that are computed on gathered maps.

    That includes operators behind them while a tensor of one image has several rows of values, such
    as the tokens of attention. Operators behind a single vector, such as linear layers after
    flattening, are not included.
    """
    nodes_by_grid = _GATHERED_BY_NETWORK.setdefault(network, {})
    if grid not in nodes_by_grid:
        nodes_by_grid[grid] = frozenset(_iter_gathered(network, choose_strategies(network, grid)))
    return nodes_by_grid[grid]


_GATHERED_BY_NETWORK: WeakKeyDictionary[TracedNetwork, dict[Grid, frozenset[fx.Node]]] = (
    WeakKeyDictionary()
)


def _iter_gathered(
    network: TracedNetwork, strategies: Mapping[fx.Node, TileStrategy]
) -> Iterator[fx.Node]:
    nodes_with_rows: set[fx.Node] = set()
    for node, strategy in strategies.items():
        reads_rows = strategy is TileStrategy.WHOLE and any(
            source in nodes_with_rows for source in node.all_input_nodes
        )
        if strategy is TileStrategy.GATHERED or reads_rows:
            yield node
            if not is_tiled(network, node) and _has_rows(network, node):
                nodes_with_rows.add(node)


def _has_rows(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node returns more than one vector per image."""
    shape = network.shapes.get(node)
    return shape is None or sum(length > 1 for length in shape) > 1


def _choose_strategy(network: TracedNetwork, grid: Grid, operator_: Operator) -> TileStrategy:
    node = operator_.node
    if _takes_split_part(network, node):
        return TileStrategy.PIXELS
    tiled_inputs = [source for source in node.all_input_nodes if is_tiled(network, source)]
    if not tiled_inputs:
        return TileStrategy.WHOLE
    source = tiled_inputs[0]
    axes = find_pixel_axes(network)[source]
    if is_tiled(network, node):
        if regroups_channels(network, node, source, axes):
            return TileStrategy.GROUPS
        if _is_pixelwise(network, operator_, grid):
            return TileStrategy.PIXELS
        if find_counterpart(network, node) is not None:
            return TileStrategy.TILES
    if splits_channels(node, axes, len(network.shapes[source])):
        return TileStrategy.PIXELS
    return TileStrategy.MEAN if _is_mean(network, node) else TileStrategy.GATHERED


def _takes_split_part(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node takes one of the parts into which channels were split."""
    return node.target is operator.getitem and find_split_source(network, node) is not None


def find_split_source(network: TracedNetwork, node: fx.Node) -> fx.Node | None:
    """Return the tiled tensor of which a node takes split channels; or None."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or not source.all_input_nodes:
        return None
    tensor = source.all_input_nodes[0]
    axes = find_pixel_axes(network)
    if tensor in axes and splits_channels(source, axes[tensor], len(network.shapes[tensor])):
        return tensor
    return None


def _is_pixelwise(network: TracedNetwork, operator_: Operator, grid: Grid) -> bool:
    node = operator_.node
    source = next(candidate for candidate in node.all_input_nodes if is_tiled(network, candidate))
    axes = find_pixel_axes(network)[source]
    axis_count = len(network.shapes[source])
    if (axis_order := get_axis_order(node, axis_count)) is not None:
        return find_pixel_axes(network)[node] == tuple(map(axis_order.index, axes))
    if selects_channels(node, axes):
        return True
    if node in network.stochastic:
        units_by_axes = {MAP_AXES: ("value", "channel", "image"), (0, 1): ("value", "image")}
        return network.stochastic[node].unit in units_by_axes.get(axes, ("image",))
    if is_pointwise(node, network.get_module(node), axes, axis_count):
        return _has_equal_pixels(network, operator_)
    return _repeats_pixels(network, node) and _maps_tiles_to_tiles(network, operator_, grid)


def _is_mean(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node is the mean over all pixels of a map."""
    source = node.all_input_nodes[0]
    if find_pixel_axes(network).get(source) != MAP_AXES:
        return False
    module = network.get_module(node)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _is_one(module.output_size)
    if node.op == "call_function" and node.target is functional.adaptive_avg_pool2d:
        return _is_one(get_arguments(node, ("output_size",)).get("output_size"))
    if node.target in ("mean", torch.mean):
        arguments = get_arguments(node, ("dim", "keepdim"))
        axes = arguments.get("dim")
        if (
            arguments.get("dtype") is None
            and isinstance(axes, Sequence)
            and all(isinstance(axis, int) for axis in axes)
        ):
            return sorted(axis % 4 for axis in axes if isinstance(axis, int)) == [*_PIXEL_AXES]
    return False


def _is_one(size: Any) -> bool:
    return size == 1 or (isinstance(size, Sequence) and list(size) == [1, 1])


def _repeats_pixels(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node computes several output pixels from each input pixel."""
    module = network.get_module(node)
    if isinstance(module, nn.Upsample):
        return module.mode == "nearest"
    if isinstance(module, nn.PixelShuffle):
        return True
    if node.target is functional.interpolate:
        arguments = get_arguments(node, ("size", "scale_factor", "mode"))
        return arguments.get("mode", "nearest") == "nearest" and arguments.get("size") is None
    return node.target is functional.pixel_shuffle


def _maps_tiles_to_tiles(network: TracedNetwork, operator_: Operator, grid: Grid) -> bool:
    """Return whether the output pixels of each tile form a tile of the output."""
    (source,) = operator_.node.all_input_nodes
    if (
        find_pixel_axes(network)[source] != MAP_AXES
        or operator_.shape is None
        or len(operator_.shape) != 3
    ):
        return False
    _, *input_sizes = network.shapes[source]
    pairs = zip(input_sizes, operator_.shape[1:], (grid.rows, grid.cols), strict=True)
    return all(
        not output_size % input_size
        and _list_tile_starts(tile_count, output_size)
        == [
            start * (output_size // input_size)
            for start in _list_tile_starts(tile_count, input_size)
        ]
        for input_size, output_size, tile_count in pairs
    )


def _list_tile_starts(tile_count: int, length: int) -> list[int]:
    """Return the first row, or column, of each tile."""
    return [compute_part_bounds(index, tile_count, length)[0] for index in range(tile_count)]


def _has_equal_pixels(network: TracedNetwork, operator_: Operator) -> bool:
    """Return whether tiled inputs have the output's pixels, and others are uniform."""
    node = operator_.node
    axes = find_pixel_axes(network)
    tiled_inputs = [source for source in node.all_input_nodes if source in axes]
    axes_and_sizes = {(axes[source], get_map_size(network, source)) for source in tiled_inputs}
    if axes_and_sizes != {(axes[node], get_map_size(network, node))}:
        return False
    assert operator_.shape is not None, "it is in tiles"
    axes_from_right = [len(operator_.shape) - axis for axis in axes[node]]
    other_inputs = [source for source in node.all_input_nodes if source not in tiled_inputs]
    return all(
        _is_uniform(network, source, axes_from_right, len(operator_.shape))
        for source in other_inputs
    )


def _is_uniform(
    network: TracedNetwork, node: fx.Node, axes_from_right: Sequence[int], axis_count: int
) -> bool:
    """Return whether a value is a number, or equal in all pixels.

    Args:
        network: The network.
        node: The value.
        axes_from_right: The axes of pixels, counted from the last axis as 1.
        axis_count: The number of axes of one image's tensor.
    """
    if node.op == "get_attr":
        value = get_attribute(network.module, str(node.target))
        if not isinstance(value, torch.Tensor) or value.numel() == 1:
            return True
        shape = tuple(value.shape)
        return all(len(shape) < axis or shape[-axis] == 1 for axis in axes_from_right)
    node_shape = network.shapes.get(node)
    if node_shape is None:
        return network.operators[network.positions[node]].is_number
    return len(node_shape) == axis_count and all(node_shape[-axis] == 1 for axis in axes_from_right)


def list_gathered_operators(network: TracedNetwork, grids: Iterable[Grid]) -> list[fx.Node]:
    """Return the operators that are computed on gathered maps for any of some grids."""
    nodes = {node for grid in grids for node in find_gathered_operators(network, grid)}
    return [operator.node for operator in network.operators if operator.node in nodes]


def count_gathered_values(network: TracedNetwork, nodes: Iterable[fx.Node]) -> int:
    """Return the number of values per image that are gathered for operators.

    Every rank gets all of them.
    """
    sources = {source: None for node in nodes for source in node.all_input_nodes}
    return sum(prod(network.shapes[source]) for source in sources if is_tiled(network, source))


def is_same_over_tiles(small: TracedNetwork, large: TracedNetwork, grid: Grid) -> bool:
    """Return whether a network behaves alike over tiles at two image sizes.

    Each operator must be computed by the same strategy. Each tile must have the pixels that its
    neighbours read, if it has them in the larger image.
    """
    small_strategies, large_strategies = (
        choose_strategies(network, grid).values() for network in (small, large)
    )
    if list(small_strategies) != list(large_strategies):
        return False
    pairs = zip(small.operators, large.operators, strict=True)
    return all(
        _has_halos(small, small_operator.node, large, large_operator.node, grid)
        for small_operator, large_operator in pairs
    )


def _has_halos(
    small: TracedNetwork, small_node: fx.Node, large: TracedNetwork, large_node: fx.Node, grid: Grid
) -> bool:
    """Return whether tiles of the small network have their halos, if the other has."""
    small_sources = [source for source in small_node.all_input_nodes if is_tiled(small, source)]
    large_sources = [source for source in large_node.all_input_nodes if is_tiled(large, source)]
    if len(small_sources) != len(large_sources):
        return False
    reach_by_axis = _find_reach(find_module(small, small_node))
    tile_counts = (grid.rows, grid.cols)
    for small_source, large_source in zip(small_sources, large_sources, strict=True):
        small_size = get_map_size(small, small_source)
        large_size = get_map_size(large, large_source)
        for small_length, large_length, tile_count, halo in zip(
            small_size, large_size, tile_counts, reach_by_axis, strict=True
        ):
            if small_length // tile_count < max(1, min(halo, large_length // tile_count)):
                return False
    return True


def _find_reach(module: nn.Module | None) -> tuple[int, int]:
    """Return how many rows and columns an operator may read beyond a tile."""
    if not isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
        return 0, 0
    kernel = expand_pair(module.kernel_size)
    dilation = expand_pair(getattr(module, "dilation", 1))
    return (kernel[0] - 1) * dilation[0], (kernel[1] - 1) * dilation[1]
