"""Ways of an imported network's operators where images are in tiles, one tile a rank.

A tensor is in tiles, or whole and the same on every rank. Images are in tiles, and so is every map
of more than one pixel. Convolutions, pools, resizing and normalisation have counterparts over
tiles; what works pixel by pixel is as it is. The mean over all pixels is whole. All else is
computed on gathered maps, on every rank alike, and is cut into tiles again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid, part_bounds
from spbench_parallel.models.imported.counterparts import find_counterpart
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.pixel_axes import (
    MAP_AXES,
    get_axis_order,
    is_tiled,
    map_size,
    pixel_axes,
    regroups_channels,
)
from spbench_parallel.models.imported.pointwise import (
    cuts_channels,
    get_arguments,
    is_pointwise,
    takes_channels,
)
from spbench_parallel.models.imported.tracing import Operator, TracedNetwork


class TileStrategy(Enum):
    """The way in which an operator is computed.

    Attributes:
        NUMBER: It gives no tensor: a size, a number.
        TILES: By its counterpart over tiles.
        PIXELS: As it is, on tiles, and on what every rank has beside them.
        GROUPS: As it is, but for the numbers of rows and columns: channels are parted, or joined.
        MEAN: As the mean over all pixels.
        WHOLE: As it is, on what every rank has.
        GATHERED: As it is, on gathered maps.
    """

    NUMBER = "number"
    TILES = "tiles"
    PIXELS = "pixels"
    GROUPS = "groups"
    MEAN = "mean"
    WHOLE = "whole"
    GATHERED = "gathered"


_PIXEL_AXES = (2, 3)


def choose_strategies(
    network: TracedNetwork, grid: Grid, operators: Sequence[Operator] | None = None
) -> dict[fx.Node, TileStrategy]:
    """Return the way of operators where images are in the tiles of a grid; else of all of them."""
    some = network.operators if operators is None else operators
    return {each.node: way for each, way in _ways(network, grid, some)}


def _ways(
    network: TracedNetwork, grid: Grid, operators: Sequence[Operator]
) -> Iterator[tuple[Operator, TileStrategy]]:
    for each in operators:
        yield each, TileStrategy.NUMBER if each.is_number else _way(network, grid, each)


def find_gathered_operators(network: TracedNetwork, grid: Grid) -> frozenset[fx.Node]:
    """Return the operators that are computed on gathered maps.

    Those behind them too, as long as what they get has several values of one image in rows, such as
    the tokens of attention. What follows one vector, as linear layers after flattening do, is not
    among them.
    """
    known = _ON_GATHERED.setdefault(network, {})
    if grid not in known:
        known[grid] = frozenset(_on_gathered(network, choose_strategies(network, grid)))
    return known[grid]


_ON_GATHERED: WeakKeyDictionary[TracedNetwork, dict[Grid, frozenset[fx.Node]]] = WeakKeyDictionary()


def _on_gathered(network: TracedNetwork, ways: Mapping[fx.Node, TileStrategy]) -> Iterator[fx.Node]:
    rows: set[fx.Node] = set()
    for node, way in ways.items():
        behind = way is TileStrategy.WHOLE and any(one in rows for one in node.all_input_nodes)
        if way is TileStrategy.GATHERED or behind:
            yield node
            if not is_tiled(network, node) and _has_rows(network, node):
                rows.add(node)


def _has_rows(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a tensor of one image is more than one vector; several tensors are."""
    shape = network.shapes.get(node)
    return shape is None or sum(length > 1 for length in shape) > 1


def _way(network: TracedNetwork, grid: Grid, each: Operator) -> TileStrategy:
    node = each.node
    if _takes_a_part(network, node):
        return TileStrategy.PIXELS
    tiled = [one for one in node.all_input_nodes if is_tiled(network, one)]
    if not tiled:
        return TileStrategy.WHOLE
    if is_tiled(network, node):
        if regroups_channels(network, node, tiled[0], pixel_axes(network)[tiled[0]]):
            return TileStrategy.GROUPS
        if _is_by_pixel(network, each, grid):
            return TileStrategy.PIXELS
        if find_counterpart(network, node) is not None:
            return TileStrategy.TILES
    if cuts_channels(node, pixel_axes(network)[tiled[0]], len(network.shapes[tiled[0]])):
        return TileStrategy.PIXELS
    return TileStrategy.MEAN if _is_mean(network, node) else TileStrategy.GATHERED


def _takes_a_part(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node takes one of several parts into which channels were cut."""
    return node.target is operator.getitem and find_split_source(network, node) is not None


def find_split_source(network: TracedNetwork, node: fx.Node) -> fx.Node | None:
    """Return the tensor in tiles of whose channels a node takes a part; None where it is none."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or not source.all_input_nodes:
        return None
    whole = source.all_input_nodes[0]
    axes = pixel_axes(network)
    if whole in axes and cuts_channels(source, axes[whole], len(network.shapes[whole])):
        return whole
    return None


def _is_by_pixel(network: TracedNetwork, each: Operator, grid: Grid) -> bool:
    node = each.node
    source = next(one for one in node.all_input_nodes if is_tiled(network, one))
    axes = pixel_axes(network)[source]
    sides = len(network.shapes[source])
    if (order := get_axis_order(node, sides)) is not None:
        return pixel_axes(network)[node] == tuple(map(order.index, axes))
    if takes_channels(node, axes):
        return True
    if node in network.stochastic:
        units = {MAP_AXES: ("value", "channel", "image"), (0, 1): ("value", "image")}
        return network.stochastic[node].unit in units.get(axes, ("image",))
    if is_pointwise(node, network.get_module(node), axes, sides):
        return _alike(network, each)
    return _repeats_pixels(network, node) and _aligned(network, each, grid)


def _is_mean(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node is the mean over all pixels of a map."""
    source = node.all_input_nodes[0]
    if pixel_axes(network).get(source) != MAP_AXES:
        return False
    module = network.get_module(node)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _is_one(module.output_size)
    if node.op == "call_function" and node.target is functional.adaptive_avg_pool2d:
        return _is_one(get_arguments(node, ("output_size",)).get("output_size"))
    if node.target in ("mean", torch.mean):
        words = get_arguments(node, ("dim", "keepdim"))
        axes = words.get("dim")
        if (
            words.get("dtype") is None
            and isinstance(axes, Sequence)
            and all(isinstance(axis, int) for axis in axes)
        ):
            return sorted(axis % 4 for axis in axes if isinstance(axis, int)) == [*_PIXEL_AXES]
    return False


def _is_one(size: Any) -> bool:
    return size == 1 or (isinstance(size, Sequence) and list(size) == [1, 1])


def _repeats_pixels(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a node makes several pixels of each, without others."""
    module = network.get_module(node)
    if isinstance(module, nn.Upsample):
        return module.mode == "nearest"
    if isinstance(module, nn.PixelShuffle):
        return True
    if node.target is functional.interpolate:
        words = get_arguments(node, ("size", "scale_factor", "mode"))
        return words.get("mode", "nearest") == "nearest" and words.get("size") is None
    return node.target is functional.pixel_shuffle


def _aligned(network: TracedNetwork, each: Operator, grid: Grid) -> bool:
    """Return whether the pixels made of each tile's are a tile of the result."""
    (source,) = each.node.all_input_nodes
    if pixel_axes(network)[source] != MAP_AXES or each.shape is None or len(each.shape) != 3:
        return False
    _, *given = network.shapes[source]
    pairs = zip(given, each.shape[1:], (grid.rows, grid.cols), strict=True)
    return all(
        not made % had
        and _begins(parts, made) == [at * (made // had) for at in _begins(parts, had)]
        for had, made, parts in pairs
    )


def _begins(parts: int, length: int) -> list[int]:
    """Return the first row, or column, of each tile."""
    return [part_bounds(at, parts, length)[0] for at in range(parts)]


def _alike(network: TracedNetwork, each: Operator) -> bool:
    """Return whether all that is in tiles has the result's pixels, and all else one pixel."""
    node = each.node
    axes = pixel_axes(network)
    tiled = [one for one in node.all_input_nodes if one in axes]
    alike = {(axes[one], map_size(network, one)) for one in tiled}
    if alike != {(axes[node], map_size(network, node))}:
        return False
    assert each.shape is not None, "it is in tiles"
    from_right = [len(each.shape) - axis for axis in axes[node]]
    others = [one for one in node.all_input_nodes if one not in tiled]
    return all(_is_flat(network, one, from_right, len(each.shape)) for one in others)


def _is_flat(network: TracedNetwork, node: fx.Node, from_right: Sequence[int], sides: int) -> bool:
    """Return whether a value is one number, or alike in all pixels.

    Args:
        network: The network.
        node: The value.
        from_right: The axes of pixels, counted from the last one as 1.
        sides: The number of axes of one image's tensor.
    """
    if node.op == "get_attr":
        value = get_attribute(network.module, str(node.target))
        if not isinstance(value, torch.Tensor) or value.numel() == 1:
            return True
        shape = tuple(value.shape)
        return all(len(shape) < axis or shape[-axis] == 1 for axis in from_right)
    given = network.shapes.get(node)
    if given is None:
        return network.operators[network.positions[node]].is_number
    return len(given) == sides and all(given[-axis] == 1 for axis in from_right)
