"""Boundary fill: values outside the image in a chain with one exchange.

A chain also computes pixels outside the image, with meaningless results. Before a layer with a
window reads them, they are set to the padding value of that layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.exchange import view_box

PIXELWISE: tuple[type[nn.Module], ...] = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Sigmoid,
    nn.LogSigmoid,
    nn.Tanh,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Softplus,
    nn.Softsign,
)
"""Torch's modules that compute each value from the input at the same position, without parameters
and random numbers. Two ranks that compute the same pixel get the same value."""


def find_fills(layers: Sequence[nn.Module]) -> dict[int, float]:
    """Return the boundary fills by the index of the layer that follows.

    A fill is applied as early as possible without changing its value. A ReLU maps a convolution's
    zeros to zeros, and its backward needs its outputs unchanged.
    """
    fill_by_layer = {}
    for index, layer in enumerate(layers):
        fill = getattr(layer, "fill", None)
        if fill is None:
            continue
        earliest = index
        while earliest > 0 and _preserves(layers[earliest - 1], fill):
            earliest -= 1
        fill_by_layer[earliest] = float(fill)
        if math.isinf(fill):
            # Outputs of a max pool outside the image are infinite, with NaN gradients (0 * inf).
            fill_by_layer.setdefault(index + 1, 0.0)
    return fill_by_layer


def _preserves(layer: nn.Module, value: float) -> bool:
    """Return whether a layer maps a value to itself."""
    return isinstance(layer, PIXELWISE) and float(layer(torch.tensor(value))) == value


def fill_outside(
    pixels: torch.Tensor, origin: Box, strips: Sequence[Box], value: float
) -> torch.Tensor:
    """Fill strips of a tensor with a value in place; their gradient is zero.

    Args:
        pixels: ``batch x channels x rows x cols``. No backward may need its values.
        origin: The box that it contains.
        strips: Boxes among those pixels.
        value: The value to fill with.
    """
    if not strips:
        return pixels
    filled: torch.Tensor = _Fill.apply(pixels, origin, strips, value)
    return filled


class _Fill(Function):
    @staticmethod
    def forward(
        ctx: Any, pixels: torch.Tensor, origin: Box, strips: Sequence[Box], value: float
    ) -> torch.Tensor:
        ctx.mark_dirty(pixels)
        ctx.origin = origin
        ctx.strips = strips
        for strip in strips:
            view_box(pixels, origin, strip).fill_(value)
        return pixels

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        # In place is safe: nothing else reads this gradient.
        for strip in ctx.strips:
            view_box(gradient, ctx.origin, strip).zero_()
        return gradient, None, None, None
