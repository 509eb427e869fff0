"""Boundary fill: values outside the image, inside a chain of layers that exchanges once.

A chain computes beyond the image too, where the results mean nothing. Before a layer with a window
reads such pixels, they are set to the value that this layer pads with.
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
"""Torch's modules that compute each value from the one at its place, without parameters and without
chance: two ranks that compute the same pixel get the same."""


def find_fills(layers: Sequence[nn.Module]) -> dict[int, float]:
    """Return the boundary fills, by the index of the layer before which each is applied.

    A fill is applied as early as its value lasts: a ReLU leaves the zeros of a convolution as they
    are, and needs its own outputs unchanged for its backward.
    """
    fills = {}
    for index, layer in enumerate(layers):
        fill = getattr(layer, "fill", None)
        if fill is None:
            continue
        place = index
        while place > 0 and _leaves(layers[place - 1], fill):
            place -= 1
        fills[place] = float(fill)
        if math.isinf(fill):
            # The outputs of a maximum pool out there are infinite, and 0 * inf is no gradient.
            fills.setdefault(index + 1, 0.0)
    return fills


def _leaves(layer: nn.Module, fill: float) -> bool:
    """Whether a layer maps a value to itself."""
    return isinstance(layer, PIXELWISE) and float(layer(torch.tensor(fill))) == fill


def fill_outside(
    pixels: torch.Tensor, origin: Box, strips: Sequence[Box], value: float
) -> torch.Tensor:
    """Fill strips of a tensor with a value, in place; backward their gradient is zero.

    Args:
        pixels: ``batch x channels x rows x cols``. No backward may need its values.
        origin: The box that it holds.
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
        # In place: the layer that reads the pixels has made this gradient for nobody else.
        for strip in ctx.strips:
            view_box(gradient, ctx.origin, strip).zero_()
        return gradient, None, None, None
