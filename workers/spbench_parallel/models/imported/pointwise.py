"""Pixelwise operators: each output pixel depends on the same pixel of the inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_parallel.models.imported.forward.leaf_modules import find_stochastic_rule

Axes = tuple[int, int]
"""The axes of rows and columns in the shape of one image's tensor."""

_MODULES = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Softplus, nn.Softsign),
    *(nn.Identity, nn.Dropout, nn.Dropout2d, nn.LogSigmoid, nn.Softmax2d, nn.Hardshrink),
)
_FUNCTIONS: frozenset[Callable[..., Any]] = frozenset(
    (
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pow),
        *(torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.pow, torch.abs, torch.exp),
        *(torch.relu, torch.sigmoid, torch.tanh, torch.sqrt, torch.clamp, torch.square),
        *(torch.log, torch.rsqrt, torch.maximum, torch.minimum, torch.sin, torch.cos),
        *(functional.relu, functional.relu6, functional.leaky_relu, functional.elu),
        *(functional.gelu, functional.silu, functional.mish, functional.softplus),
        *(functional.hardswish, functional.hardsigmoid, functional.sigmoid, functional.tanh),
        *(functional.dropout, functional.dropout2d, functional.logsigmoid),
    )
)
_METHODS = frozenset(
    (
        *("add", "sub", "mul", "div", "neg", "pow", "abs", "exp", "sqrt", "square", "log"),
        *("relu", "sigmoid", "tanh", "clamp", "contiguous", "clone", "rsqrt", "float"),
    )
)
_SOFTMAX = functional.softmax, functional.log_softmax, torch.softmax, torch.log_softmax
_REDUCTIONS = torch.mean, torch.sum, torch.amax, torch.amin, torch.cumsum, torch.std
_KEEPDIM_POSITION = {torch.std: 3, "std": 3}  # of the argument ``keepdim``, if it is not 2
_ALONG_LAST = functional.layer_norm, functional.linear
_SPLITS = torch.chunk, torch.split, "chunk", "split"


def is_pointwise(node: fx.Node, module: nn.Module | None, axes: Axes, axis_count: int) -> bool:
    """Return whether a node works pixel by pixel on a tensor.

    Args:
        node: The node.
        module: The module that it calls, or None.
        axes: The axes of the tensor's rows and columns.
        axis_count: The number of its axes, without the batch.
    """
    if isinstance(module, nn.Softmax | nn.LogSoftmax):
        return _is_channel_axis(module.dim, axes, axis_count)
    if module is not None:
        # Stochastic operators that draw are handled by the caller: these drop nothing.
        return isinstance(module, _MODULES) or find_stochastic_rule(module) is not None
    if node.target in _METHODS or (node.op == "call_function" and node.target in _FUNCTIONS):
        return True
    if node.target in _ALONG_LAST:
        return works_along_last(node) and axes[1] < axis_count - 1
    if node.target in (*_SOFTMAX, "softmax", "log_softmax"):
        return _is_channel_axis(get_argument(node, 1, "dim"), axes, axis_count)
    if node.target in (*_REDUCTIONS, *(function.__name__ for function in _REDUCTIONS)):
        position = _KEEPDIM_POSITION.get(node.target, 2)
        keeps = get_argument(node, position, "keepdim", default=False) is True
        keeps |= node.target in (torch.cumsum, "cumsum")
        return keeps and _is_channel_axis(get_argument(node, 1, "dim"), axes, axis_count)
    return joins_channels(node, axes, axis_count)


def works_by_value(node: fx.Node, module: nn.Module | None) -> bool:
    """Return whether a node works value by value on tensors of equal shape.

    Args:
        node: The node.
        module: The module that it calls, or None.
    """
    if module is not None:
        return isinstance(module, _MODULES) and not isinstance(module, nn.Softmax2d)
    return node.target in _METHODS or (node.op == "call_function" and node.target in _FUNCTIONS)


def is_along_last(module: nn.Module | None) -> bool:
    """Return whether a module with parameters works along the last axis only."""
    if isinstance(module, nn.LayerNorm):
        return len(module.normalized_shape) == 1
    return type(module) is nn.Linear


def works_along_last(node: fx.Node) -> bool:
    """Return whether a function of `_ALONG_LAST` works along the last axis only."""
    if node.target is not functional.layer_norm:
        return True
    shape = get_argument(node, 1, "normalized_shape")
    return isinstance(shape, tuple | list) and len(shape) == 1


def joins_channels(node: fx.Node, axes: Axes, axis_count: int) -> bool:
    """Return whether a node concatenates the channels of several tensors."""
    axis = get_argument(node, 1, "dim", default=node.kwargs.get("axis", 0))
    return node.target in (torch.cat, torch.concat) and _is_channel_axis(axis, axes, axis_count)


def splits_channels(node: fx.Node, axes: Axes, axis_count: int) -> bool:
    """Return whether a node splits channels into several parts."""
    return node.target in _SPLITS and _is_channel_axis(
        get_argument(node, 2, "dim", default=0), axes, axis_count
    )


def selects_channels(node: fx.Node, axes: Axes) -> bool:
    """Return whether a node takes some channels of a tensor by slices."""
    slices = get_slices(node)
    if slices is None:
        return False
    sliced = [axis for axis, slice_ in enumerate(slices) if slice_ != slice(None)]
    return 0 not in sliced and not any(axis - 1 in axes for axis in sliced)


def get_slices(node: fx.Node) -> tuple[slice, ...] | None:
    """Return the slices that a node takes of a tensor, one per axis; or None."""
    if node.target is not operator.getitem or len(node.args) != 2:
        return None
    indices = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    if not all(isinstance(index, slice) for index in indices):
        return None
    return tuple(index for index in indices if isinstance(index, slice))


def get_argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a node by position or name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def get_arguments(node: fx.Node, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the arguments of a node after the first, by these names."""
    return dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)


def _is_channel_axis(axis: Any, axes: Axes, axis_count: int) -> bool:
    """Return whether an axis is neither the batch axis nor rows or columns."""
    if isinstance(axis, list | tuple) and len(axis) == 1:
        (axis,) = axis
    if not isinstance(axis, int) or isinstance(axis, bool):
        return False
    position = axis % (axis_count + 1) - 1
    return position >= 0 and position not in axes
