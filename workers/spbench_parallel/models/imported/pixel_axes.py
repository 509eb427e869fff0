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
    is_along_last,
    is_pointwise,
    selects_channels,
    splits_channels,
)
from spbench_parallel.models.imported.tracing import TracedNetwork

MAP_AXES = 1, 2
"""The axes of rows and columns of a map, ``channels x rows x cols``."""


_AXES_BY_NETWORK: WeakKeyDictionary[TracedNetwork, Mapping[fx.Node, Axes]] = WeakKeyDictionary()
"""The axes by network; weak references, so that networks can be freed."""


def find_pixel_axes(network: TracedNetwork) -> Mapping[fx.Node, Axes]:
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
    return node in find_pixel_axes(network)


def get_map_size(network: TracedNetwork, node: fx.Node) -> tuple[int, int]:
    """Return height and width of a tiled value."""
    shape = network.shapes[node]
    (rows, cols) = find_pixel_axes(network)[node]
    return shape[rows], shape[cols]


def _find_axes(
    network: TracedNetwork, node: fx.Node, axes_by_node: Mapping[fx.Node, Axes]
) -> Axes | None:
    """Return a node's axes of rows and columns; or None."""
    default_axes = MAP_AXES if len(network.shapes[node]) == 3 else None
    input_nodes = [node_ for node_ in node.all_input_nodes if node_ in network.shapes]
    tiled_inputs = [node_ for node_ in input_nodes if node_ in axes_by_node]
    if not tiled_inputs:
        split_axes = _find_split_axes(network, node, axes_by_node)
        return split_axes or (
            None if _keeps_input_axes(network, node, input_nodes) else default_axes
        )
    source = tiled_inputs[0]
    axis_count = len(network.shapes[tiled_inputs[0]])
    axes = axes_by_node[source]
    order = get_axis_order(node, axis_count)
    if order is not None:
        rows, cols = (order.index(axis) for axis in axes)
        return (rows, cols) if rows + 1 == cols else default_axes
    if regroups_channels(network, node, source, axes):
        output_axis_count = len(network.shapes[node])
        return output_axis_count - 2, output_axis_count - 1
    module = network.get_module(node)
    keeps_axes = (
        node in network.stochastic
        or is_pointwise(node, module, axes, axis_count)
        or splits_channels(node, axes, axis_count)
        or selects_channels(node, axes)
        or (is_along_last(module) and axes[1] < axis_count - 1)
    )
    return axes if keeps_axes else default_axes


def _keeps_input_axes(network: TracedNetwork, node: fx.Node, sources: Sequence[fx.Node]) -> bool:
    """Return whether a node's output has the axes of one of its inputs."""
    module = network.get_module(node)
    return any(
        get_axis_order(node, axis_count) is not None
        or is_along_last(module)
        or is_pointwise(node, module, (0, 1), axis_count)
        for axis_count in (len(network.shapes[source]) for source in sources)
    )


def _find_split_axes(
    network: TracedNetwork, node: fx.Node, axes_by_node: Mapping[fx.Node, Axes]
) -> Axes | None:
    """Return the axes of one of the parts into which channels were split; or None."""
    split = node.args[0] if node.target is operator.getitem else None
    if not isinstance(split, fx.Node) or not split.all_input_nodes:
        return None
    tensor = split.all_input_nodes[0]
    if tensor in axes_by_node and splits_channels(
        split, axes_by_node[tensor], len(network.shapes[tensor])
    ):
        return axes_by_node[tensor]
    return None


def get_axis_order(node: fx.Node, axis_count: int) -> list[int] | None:
    """Return a permutation's axes of one image's tensor; None for other nodes."""
    axis_arguments = [axis for axis in _flatten_arguments(node.args[1:]) if isinstance(axis, int)]
    if node.kwargs or len(axis_arguments) != len(_flatten_arguments(node.args[1:])):
        return None
    order = list(range(axis_count + 1))
    axis_arguments = [axis % (axis_count + 1) for axis in axis_arguments]
    if _function_name(node) == "permute" and sorted(axis_arguments) == order:
        order = axis_arguments
    elif _function_name(node) in ("transpose", "swapaxes") and len(axis_arguments) == 2:
        first, second = axis_arguments
        order[first], order[second] = order[second], order[first]
    else:
        return None
    return [axis - 1 for axis in order[1:]] if order[0] == 0 else None


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
