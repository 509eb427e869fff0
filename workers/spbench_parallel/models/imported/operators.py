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

from spbench_core.layout.tiles import Grid, bounds
from spbench_parallel.models.imported.counterparts import counterpart_of
from spbench_parallel.models.imported.forward.sizes import attribute
from spbench_parallel.models.imported.pixel_axes import (
    LAST,
    in_tiles,
    permuted,
    pixel_axes,
    regroups,
    sides_of,
)
from spbench_parallel.models.imported.pointwise import (
    cuts_channels,
    is_pointwise,
    takes_channels,
    words_of,
)
from spbench_parallel.models.imported.tracing import Operator, Traced


class TileWay(Enum):
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


def ways_of(
    network: Traced, grid: Grid, operators: Sequence[Operator] | None = None
) -> dict[fx.Node, TileWay]:
    """Return the way of operators where images are in the tiles of a grid; else of all of them."""
    some = network.operators if operators is None else operators
    return {each.node: way for each, way in _ways(network, grid, some)}


def _ways(
    network: Traced, grid: Grid, operators: Sequence[Operator]
) -> Iterator[tuple[Operator, TileWay]]:
    for each in operators:
        yield each, TileWay.NUMBER if each.number else _way(network, grid, each)


def on_gathered(network: Traced, grid: Grid) -> frozenset[fx.Node]:
    """Return the operators that are computed on gathered maps.

    Those behind them too, as long as what they get has several values of one image in rows, such as
    the tokens of attention. What follows one vector, as linear layers after flattening do, is not
    among them.
    """
    known = _ON_GATHERED.setdefault(network, {})
    if grid not in known:
        known[grid] = frozenset(_on_gathered(network, ways_of(network, grid)))
    return known[grid]


_ON_GATHERED: WeakKeyDictionary[Traced, dict[Grid, frozenset[fx.Node]]] = WeakKeyDictionary()


def _on_gathered(network: Traced, ways: Mapping[fx.Node, TileWay]) -> Iterator[fx.Node]:
    rows: set[fx.Node] = set()
    for node, way in ways.items():
        behind = way is TileWay.WHOLE and any(one in rows for one in node.all_input_nodes)
        if way is TileWay.GATHERED or behind:
            yield node
            if not in_tiles(network, node) and _has_rows(network, node):
                rows.add(node)


def _has_rows(network: Traced, node: fx.Node) -> bool:
    """Return whether a tensor of one image is more than one vector; several tensors are."""
    shape = network.shapes.get(node)
    return shape is None or sum(length > 1 for length in shape) > 1


def _way(network: Traced, grid: Grid, each: Operator) -> TileWay:
    node = each.node
    if _takes_a_part(network, node):
        return TileWay.PIXELS
    tiled = [one for one in node.all_input_nodes if in_tiles(network, one)]
    if not tiled:
        return TileWay.WHOLE
    if in_tiles(network, node):
        if regroups(network, node, tiled[0], pixel_axes(network)[tiled[0]]):
            return TileWay.GROUPS
        if _is_by_pixel(network, each, grid):
            return TileWay.PIXELS
        if counterpart_of(network, node) is not None:
            return TileWay.TILES
    if cuts_channels(node, pixel_axes(network)[tiled[0]], len(network.shapes[tiled[0]])):
        return TileWay.PIXELS
    return TileWay.MEAN if _is_mean(network, node) else TileWay.GATHERED


def _takes_a_part(network: Traced, node: fx.Node) -> bool:
    """Return whether a node takes one of several parts into which channels were cut."""
    return node.target is operator.getitem and parted(network, node) is not None


def parted(network: Traced, node: fx.Node) -> fx.Node | None:
    """Return the tensor in tiles of whose channels a node takes a part; None where it is none."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or not source.all_input_nodes:
        return None
    whole = source.all_input_nodes[0]
    axes = pixel_axes(network)
    if whole in axes and cuts_channels(source, axes[whole], len(network.shapes[whole])):
        return whole
    return None


def _is_by_pixel(network: Traced, each: Operator, grid: Grid) -> bool:
    node = each.node
    source = next(one for one in node.all_input_nodes if in_tiles(network, one))
    axes = pixel_axes(network)[source]
    sides = len(network.shapes[source])
    if (order := permuted(node, sides)) is not None:
        return pixel_axes(network)[node] == tuple(map(order.index, axes))
    if takes_channels(node, axes):
        return True
    if node in network.chance:
        units = {LAST: ("value", "channel", "image"), (0, 1): ("value", "image")}
        return network.chance[node].unit in units.get(axes, ("image",))
    if is_pointwise(node, network.called(node), axes, sides):
        return _alike(network, each)
    return _repeats_pixels(network, node) and _aligned(network, each, grid)


def _is_mean(network: Traced, node: fx.Node) -> bool:
    """Return whether a node is the mean over all pixels of a map."""
    source = node.all_input_nodes[0]
    if pixel_axes(network).get(source) != LAST:
        return False
    module = network.called(node)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _is_one(module.output_size)
    if node.op == "call_function" and node.target is functional.adaptive_avg_pool2d:
        return _is_one(words_of(node, ("output_size",)).get("output_size"))
    if node.target in ("mean", torch.mean):
        words = words_of(node, ("dim", "keepdim"))
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


def _repeats_pixels(network: Traced, node: fx.Node) -> bool:
    """Return whether a node makes several pixels of each, without others."""
    module = network.called(node)
    if isinstance(module, nn.Upsample):
        return module.mode == "nearest"
    if isinstance(module, nn.PixelShuffle):
        return True
    if node.target is functional.interpolate:
        words = words_of(node, ("size", "scale_factor", "mode"))
        return words.get("mode", "nearest") == "nearest" and words.get("size") is None
    return node.target is functional.pixel_shuffle


def _aligned(network: Traced, each: Operator, grid: Grid) -> bool:
    """Return whether the pixels made of each tile's are a tile of the result."""
    (source,) = each.node.all_input_nodes
    if pixel_axes(network)[source] != LAST or each.shape is None or len(each.shape) != 3:
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
    return [bounds(at, parts, length)[0] for at in range(parts)]


def _alike(network: Traced, each: Operator) -> bool:
    """Return whether all that is in tiles has the result's pixels, and all else one pixel."""
    node = each.node
    axes = pixel_axes(network)
    tiled = [one for one in node.all_input_nodes if one in axes]
    alike = {(axes[one], sides_of(network, one)) for one in tiled}
    if alike != {(axes[node], sides_of(network, node))}:
        return False
    assert each.shape is not None, "it is in tiles"
    from_right = [len(each.shape) - axis for axis in axes[node]]
    others = [one for one in node.all_input_nodes if one not in tiled]
    return all(_is_flat(network, one, from_right, len(each.shape)) for one in others)


def _is_flat(network: Traced, node: fx.Node, from_right: Sequence[int], sides: int) -> bool:
    """Return whether a value is one number, or alike in all pixels.

    Args:
        network: The network.
        node: The value.
        from_right: The axes of pixels, counted from the last one as 1.
        sides: The number of axes of one image's tensor.
    """
    if node.op == "get_attr":
        value = attribute(network.module, str(node.target))
        if not isinstance(value, torch.Tensor) or value.numel() == 1:
            return True
        shape = tuple(value.shape)
        return all(len(shape) < axis or shape[-axis] == 1 for axis in from_right)
    given = network.shapes.get(node)
    if given is None:
        return network.operators[network.places[node]].number
    return len(given) == sides and all(given[-axis] == 1 for axis in from_right)
