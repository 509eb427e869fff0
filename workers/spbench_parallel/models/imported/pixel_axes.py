"""The axes of rows and columns of each tensor that is in tiles if images are.

Images and maps have them last. If a network moves channels to the end (a layer normalisation over
channels, a linear layer per pixel) or splits them into groups (a channel shuffle), the axes move
with them. A tensor that is not computed from pixels has no such axes, unless it is a map of more
than one pixel, which is cut into tiles.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import fx

from spbench_parallel.models.imported.pointwise import (
    Axes,
    cuts_channels,
    is_along_last,
    is_pointwise,
    takes_channels,
)
from spbench_parallel.models.imported.tracing import TracedNetwork

MAP_AXES = 1, 2
"""The axes of rows and columns of a map, ``channels x rows x cols``."""


_AXES_BY_NETWORK: WeakKeyDictionary[TracedNetwork, Mapping[fx.Node, Axes]] = WeakKeyDictionary()
"""The axes by network; weak references, so that networks can be freed."""


def pixel_axes(network: TracedNetwork) -> Mapping[fx.Node, Axes]:
    """Return the axes of all tensors that are in tiles."""
    if network not in _AXES_BY_NETWORK:
        _AXES_BY_NETWORK[network] = _find_all_axes(network)
    return _AXES_BY_NETWORK[network]


def _find_all_axes(network: TracedNetwork) -> Mapping[fx.Node, Axes]:
    axes_by_node: dict[fx.Node, Axes] = {}
    for node in network.positions:
        shape = network.shapes.get(node)
        if shape is None:
            continue
        axes = _find_axes(network, node, axes_by_node)
        if axes is not None and shape[axes[0]] * shape[axes[1]] > 1:
            axes_by_node[node] = axes
    return axes_by_node


def is_tiled(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether a value is in tiles: it has more than one pixel."""
    return node in pixel_axes(network)


def map_size(network: TracedNetwork, node: fx.Node) -> tuple[int, int]:
    """Return height and width of a tiled value."""
    shape = network.shapes[node]
    (rows, cols) = pixel_axes(network)[node]
    return shape[rows], shape[cols]


def _find_axes(
    network: TracedNetwork, node: fx.Node, axes_by_node: Mapping[fx.Node, Axes]
) -> Axes | None:
    """Return a node's axes of rows and columns; or None."""
    default = MAP_AXES if len(network.shapes[node]) == 3 else None
    tensors = [tensor for tensor in node.all_input_nodes if tensor in network.shapes]
    sources = [tensor for tensor in tensors if tensor in axes_by_node]
    if not sources:
        split_axes = _find_split_axes(network, node, axes_by_node)
        return split_axes or (None if _keeps_shape(network, node, tensors) else default)
    source = sources[0]
    sides = len(network.shapes[sources[0]])
    axes = axes_by_node[source]
    order = get_axis_order(node, sides)
    if order is not None:
        rows, cols = (order.index(axis) for axis in axes)
        return (rows, cols) if rows + 1 == cols else default
    if regroups_channels(network, node, source, axes):
        last = len(network.shapes[node])
        return last - 2, last - 1
    module = network.get_module(node)
    keeps = (
        node in network.stochastic
        or is_pointwise(node, module, axes, sides)
        or cuts_channels(node, axes, sides)
        or takes_channels(node, axes)
        or (is_along_last(module) and axes[1] < sides - 1)
    )
    return axes if keeps else default


def _keeps_shape(network: TracedNetwork, node: fx.Node, sources: Sequence[fx.Node]) -> bool:
    """Return whether a node's output has the axes of one of its inputs."""
    module = network.get_module(node)
    return any(
        get_axis_order(node, sides) is not None
        or is_along_last(module)
        or is_pointwise(node, module, (0, 1), sides)
        for sides in (len(network.shapes[source]) for source in sources)
    )


def _find_split_axes(
    network: TracedNetwork, node: fx.Node, axes_by_node: Mapping[fx.Node, Axes]
) -> Axes | None:
    """Return the axes of one of the parts into which channels were split; or None."""
    split = node.args[0] if node.target is operator.getitem else None
    if not isinstance(split, fx.Node) or not split.all_input_nodes:
        return None
    tensor = split.all_input_nodes[0]
    if tensor in axes_by_node and cuts_channels(
        split, axes_by_node[tensor], len(network.shapes[tensor])
    ):
        return axes_by_node[tensor]
    return None


def get_axis_order(node: fx.Node, sides: int) -> list[int] | None:
    """Return a permutation's axes of one image's tensor; None for other nodes."""
    numbers = [number for number in _flatten_arguments(node.args[1:]) if isinstance(number, int)]
    if node.kwargs or len(numbers) != len(_flatten_arguments(node.args[1:])):
        return None
    order = list(range(sides + 1))
    numbers = [number % (sides + 1) for number in numbers]
    if _function_name(node) == "permute" and sorted(numbers) == order:
        order = numbers
    elif _function_name(node) in ("transpose", "swapaxes") and len(numbers) == 2:
        first, second = numbers
        order[first], order[second] = order[second], order[first]
    else:
        return None
    return [number - 1 for number in order[1:]] if order[0] == 0 else None


def regroups_channels(network: TracedNetwork, node: fx.Node, source: fx.Node, axes: Axes) -> bool:
    """Return whether a node splits or joins only channels, before the pixel axes."""
    if _function_name(node) not in ("view", "reshape", "flatten", "unflatten"):
        return False
    input_shape = network.shapes[source]
    output_shape = network.shapes.get(node)
    return (
        output_shape is not None
        and len(output_shape) > 2
        and axes == (len(input_shape) - 2, len(input_shape) - 1)
        and output_shape[-2:] == input_shape[-2:]
    )


def _function_name(node: fx.Node) -> str:
    """Return the name of a tensor method or torch function; empty for others."""
    if node.op == "call_method":
        return str(node.target)
    name = getattr(node.target, "__name__", "")
    return name if name and getattr(torch, name, None) is node.target else ""


def _flatten_arguments(values: Sequence[object]) -> list[object]:
    """Return arguments as a list, whether or not they are in a list."""
    first = values[0] if len(values) == 1 else None
    return list(first) if isinstance(first, list | tuple) else list(values)
