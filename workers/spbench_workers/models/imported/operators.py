"""Ways of an imported network's operators where images are in tiles, one tile a rank.

A tensor is in tiles, or whole and the same on every rank. Images are in tiles, and so is every map
of more than one pixel. Convolutions, pools and batch normalisation have counterparts over tiles;
what works pixel by pixel is as it is. The mean over all pixels is whole. All else is computed on
gathered maps, on every rank alike, and is cut into tiles again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid, bounds
from spbench_workers.models.imported.tracing import Operator, Traced, attribute


class TileWay(Enum):
    """The way in which an operator is computed.

    Attributes:
        NUMBER: It gives no tensor: a size, a number.
        TILES: By its counterpart over tiles.
        PIXELS: As it is, on tiles, and on what every rank has beside them.
        MEAN: As the mean over all pixels.
        WHOLE: As it is, on what every rank has.
        GATHERED: As it is, on gathered maps.
    """

    NUMBER = "number"
    TILES = "tiles"
    PIXELS = "pixels"
    MEAN = "mean"
    WHOLE = "whole"
    GATHERED = "gathered"


_POINTWISE_MODULES = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Softplus, nn.Softsign),
    *(nn.Identity, nn.Dropout, nn.Dropout2d),
)
_POINTWISE_FUNCTIONS: frozenset[Callable[..., Any]] = frozenset(
    (
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pow),
        *(torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.pow, torch.abs, torch.exp),
        *(torch.relu, torch.sigmoid, torch.tanh, torch.sqrt, torch.clamp, torch.square),
        *(functional.relu, functional.relu6, functional.leaky_relu, functional.elu),
        *(functional.gelu, functional.silu, functional.mish, functional.softplus),
        *(functional.hardswish, functional.hardsigmoid, functional.sigmoid, functional.tanh),
        *(functional.dropout, functional.dropout2d),
    )
)
_POINTWISE_METHODS = frozenset(
    (
        *("add", "sub", "mul", "div", "neg", "pow", "abs", "exp", "sqrt", "square"),
        *("relu", "sigmoid", "tanh", "clamp", "contiguous", "clone"),
    )
)
_POOLS: dict[Any, type[nn.Module]] = {
    functional.max_pool2d: nn.MaxPool2d,
    torch.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
}
"""Functions of pools, and the modules of the same arguments."""
_ADAPTIVE = functional.adaptive_avg_pool2d, torch.nn.functional.adaptive_avg_pool2d
_PIXEL_AXES = (2, 3)


def ways_of(
    network: Traced, grid: Grid, operators: Sequence[Operator] | None = None
) -> dict[fx.Node, TileWay]:
    """Return the way of operators where images are in the tiles of a grid; else of all of them."""
    some = network.operators if operators is None else operators
    return {each.node: way for each, way in _ways(network, grid, some)}


def in_tiles(network: Traced, node: fx.Node) -> bool:
    """Return whether what a node gives is in tiles: maps of more than one pixel."""
    shape = network.shapes.get(node)
    return shape is not None and len(shape) == 3 and shape[1] * shape[2] > 1


def called(network: Traced, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls, if it does."""
    return network.module.get_submodule(str(node.target)) if node.op == "call_module" else None


def _ways(
    network: Traced, grid: Grid, operators: Sequence[Operator]
) -> Iterator[tuple[Operator, TileWay]]:
    for each in operators:
        if each.number:
            yield each, TileWay.NUMBER
        elif _takes_a_part(network, each.node):
            yield each, TileWay.PIXELS
        elif not any(in_tiles(network, node) for node in each.node.all_input_nodes):
            yield each, TileWay.WHOLE
        elif _has_counterpart(network, each.node):
            yield each, TileWay.TILES
        elif _is_mean(network, each.node):
            yield each, TileWay.MEAN
        elif _is_by_pixel(network, each, grid):
            yield each, TileWay.PIXELS
        else:
            yield each, TileWay.GATHERED


def _takes_a_part(network: Traced, node: fx.Node) -> bool:
    """Return whether a node takes one of several parts into which channels were cut."""
    source = node.args[0] if node.args else None
    return (
        node.target is operator.getitem
        and isinstance(source, fx.Node)
        and _cuts_channels(source)
        and in_tiles(network, source.all_input_nodes[0])
    )


def _cuts_channels(node: fx.Node) -> bool:
    if node.target not in (torch.chunk, torch.split, "chunk", "split"):
        return False
    return (node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")) in (1, -3)


def _is_by_pixel(network: Traced, each: Operator, grid: Grid) -> bool:
    if _cuts_channels(each.node):
        return True
    if each.node in network.chance:
        return in_tiles(network, each.node)
    if _is_pointwise(network, each.node):
        return _alike(network, each)
    return _repeats_pixels(network, each.node) and _aligned(network, each, grid)


def _has_counterpart(network: Traced, node: fx.Node) -> bool:
    module = module_of(network, node)
    if isinstance(module, nn.Conv2d):
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    if isinstance(module, nn.MaxPool2d):
        return not (module.ceil_mode or module.return_indices)
    if isinstance(module, nn.AvgPool2d):
        return not module.ceil_mode and module.divisor_override is None
    if isinstance(module, nn.InstanceNorm2d):
        return not module.track_running_stats
    return isinstance(module, nn.BatchNorm2d | nn.GroupNorm)


def module_of(network: Traced, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls, or that of the same pool as the function it calls.

    None where it is neither.
    """
    if node.target not in _POOLS:
        return called(network, node)
    kwargs = {name: value for name, value in node.kwargs.items() if name != "input"}
    try:
        return _POOLS[node.target](*node.args[1:], **kwargs)
    except TypeError:
        return None


def _is_mean(network: Traced, node: fx.Node) -> bool:
    """Return whether a node is the mean over all pixels."""
    module = called(network, node)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _is_one(module.output_size)
    if node.op == "call_function" and node.target in _ADAPTIVE:
        size = node.args[1] if len(node.args) > 1 else node.kwargs.get("output_size")
        return _is_one(size)
    if node.target in ("mean", torch.mean):
        axes = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if isinstance(axes, Sequence) and all(isinstance(axis, int) for axis in axes):
            return sorted(axis % 4 for axis in axes if isinstance(axis, int)) == [*_PIXEL_AXES]
    return False


def _is_one(size: Any) -> bool:
    return size == 1 or (isinstance(size, Sequence) and list(size) == [1, 1])


def _is_pointwise(network: Traced, node: fx.Node) -> bool:
    module = called(network, node)
    if module is not None:
        return isinstance(module, _POINTWISE_MODULES)
    if node.op == "call_function":
        return node.target in _POINTWISE_FUNCTIONS or _joins_channels(node)
    return node.target in _POINTWISE_METHODS


def _joins_channels(node: fx.Node) -> bool:
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("axis"))
    return node.target in (torch.cat, torch.concat) and axis in (1, -3)


def _repeats_pixels(network: Traced, node: fx.Node) -> bool:
    """Return whether a node makes several pixels of each, without others."""
    module = called(network, node)
    if isinstance(module, nn.Upsample):
        return module.mode == "nearest"
    if isinstance(module, nn.PixelShuffle):
        return True
    if node.target is functional.interpolate:
        words = dict(zip(("size", "scale_factor", "mode"), node.args[1:], strict=False))
        mode = (words | dict(node.kwargs)).get("mode", "nearest")
        return mode == "nearest" and (words | dict(node.kwargs)).get("size") is None
    return node.target is functional.pixel_shuffle


def _aligned(network: Traced, each: Operator, grid: Grid) -> bool:
    """Return whether the pixels made of each tile's are a tile of the result."""
    (source,) = each.node.all_input_nodes
    if each.shape is None or len(each.shape) != 3:
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
    tiled = [node for node in each.node.all_input_nodes if in_tiles(network, node)]
    sizes = {network.shapes[node][1:] for node in tiled}
    if each.shape is None or len(each.shape) != 3 or sizes != {each.shape[1:]}:
        return False
    others = [node for node in each.node.all_input_nodes if node not in tiled]
    return all(_is_flat(network, node) for node in others)


def _is_flat(network: Traced, node: fx.Node) -> bool:
    """Return whether a value is one number, or one for each channel, and so alike in all pixels."""
    if node.op == "get_attr":
        value = attribute(network.module, str(node.target))
        return not isinstance(value, torch.Tensor) or (
            value.numel() == 1 or (value.dim() >= 3 and tuple(value.shape[-2:]) == (1, 1))
        )
    shape = network.shapes.get(node)
    if shape is None:
        return network.operators[network.places[node]].number
    return len(shape) == 3 and tuple(shape[1:]) == (1, 1)
