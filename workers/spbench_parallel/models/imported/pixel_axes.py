"""The axes of rows and columns of each tensor of a network that is in tiles where images are.

Images have them last, and so have maps. Where a network moves channels to the end (a layer
normalisation over channels, a linear layer for each pixel), or parts them in groups (a channel
shuffle), the axes move with them. A tensor that is made of others than pixels has none, unless it
is a map of more than one pixel, which is cut into tiles.
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
"""The axes of a map, ``channels x rows x cols``."""


_KNOWN: WeakKeyDictionary[TracedNetwork, Mapping[fx.Node, Axes]] = WeakKeyDictionary()
"""The axes of the networks in being: a network, with its weights, lives no longer for them."""


def pixel_axes(network: TracedNetwork) -> Mapping[fx.Node, Axes]:
    """Return the axes of all tensors that are in tiles."""
    if network not in _KNOWN:
        _KNOWN[network] = _found(network)
    return _KNOWN[network]


def _found(network: TracedNetwork) -> Mapping[fx.Node, Axes]:
    found: dict[fx.Node, Axes] = {}
    for node in network.positions:
        shape = network.shapes.get(node)
        if shape is None:
            continue
        axes = _axes(network, node, found)
        if axes is not None and shape[axes[0]] * shape[axes[1]] > 1:
            found[node] = axes
    return found


def is_tiled(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether what a node gives is in tiles: maps of more than one pixel."""
    return node in pixel_axes(network)


def map_size(network: TracedNetwork, node: fx.Node) -> tuple[int, int]:
    """Return height and width of what is in tiles."""
    shape = network.shapes[node]
    (rows, cols) = pixel_axes(network)[node]
    return shape[rows], shape[cols]


def _axes(network: TracedNetwork, node: fx.Node, found: Mapping[fx.Node, Axes]) -> Axes | None:
    """Return a node's axes of rows and columns; None where it has none."""
    made = MAP_AXES if len(network.shapes[node]) == 3 else None
    tensors = [one for one in node.all_input_nodes if one in network.shapes]
    sources = [one for one in tensors if one in found]
    if not sources:
        part = _of_part(network, node, found)
        return part or (None if _keeps_shape(network, node, tensors) else made)
    source = sources[0]
    sides = len(network.shapes[sources[0]])
    axes = found[source]
    order = get_axis_order(node, sides)
    if order is not None:
        rows, cols = (order.index(axis) for axis in axes)
        return (rows, cols) if rows + 1 == cols else made
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
    return axes if keeps else made


def _keeps_shape(network: TracedNetwork, node: fx.Node, sources: Sequence[fx.Node]) -> bool:
    """Return whether a node makes no map of what is whole: its tensor is as one of its inputs'."""
    module = network.get_module(node)
    return any(
        get_axis_order(node, sides) is not None
        or is_along_last(module)
        or is_pointwise(node, module, (0, 1), sides)
        for sides in (len(network.shapes[one]) for one in sources)
    )


def _of_part(network: TracedNetwork, node: fx.Node, found: Mapping[fx.Node, Axes]) -> Axes | None:
    """Return the axes of one of several parts into which the channels of a tensor were cut."""
    cut = node.args[0] if node.target is operator.getitem else None
    if not isinstance(cut, fx.Node) or not cut.all_input_nodes:
        return None
    whole = cut.all_input_nodes[0]
    if whole in found and cuts_channels(cut, found[whole], len(network.shapes[whole])):
        return found[whole]
    return None


def get_axis_order(node: fx.Node, sides: int) -> list[int] | None:
    """Return the axes of one image's tensor in a new order; None where a node is no such change."""
    numbers = [one for one in _flat(node.args[1:]) if isinstance(one, int)]
    if node.kwargs or len(numbers) != len(_flat(node.args[1:])):
        return None
    order = list(range(sides + 1))
    numbers = [one % (sides + 1) for one in numbers]
    if _word(node) == "permute" and sorted(numbers) == order:
        order = numbers
    elif _word(node) in ("transpose", "swapaxes") and len(numbers) == 2:
        first, second = numbers
        order[first], order[second] = order[second], order[first]
    else:
        return None
    return [one - 1 for one in order[1:]] if order[0] == 0 else None


def regroups_channels(network: TracedNetwork, node: fx.Node, source: fx.Node, axes: Axes) -> bool:
    """Return whether a node parts or joins channels alone, before the axes of pixels."""
    if _word(node) not in ("view", "reshape", "flatten", "unflatten"):
        return False
    given = network.shapes[source]
    made = network.shapes.get(node)
    return (
        made is not None
        and len(made) > 2
        and axes == (len(given) - 2, len(given) - 1)
        and made[-2:] == given[-2:]
    )


def _word(node: fx.Node) -> str:
    """Return the name of a tensor's method or of torch's function; empty for anything else."""
    if node.op == "call_method":
        return str(node.target)
    name = getattr(node.target, "__name__", "")
    return name if name and getattr(torch, name, None) is node.target else ""


def _flat(values: Sequence[object]) -> list[object]:
    """Return arguments in a row, be they given in a list or not."""
    first = values[0] if len(values) == 1 else None
    return list(first) if isinstance(first, list | tuple) else list(values)
