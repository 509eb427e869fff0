"""Convolution on a device, with arguments that its kernels compute right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from spbench_core.layout.window import expand_pair

Sizes = int | Sequence[int]
"""One number for each axis, or one for all."""

_DEFECTIVE = (torch.bfloat16, torch.uint8)


def convolve(
    pixels: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> torch.Tensor:
    """Return what `torch.conv2d` is to give, ``batch x channels x rows x cols``.

    The gradient of the bias is summed by torch, as it is with CUDA: oneDNN adds one pixel after
    another in the pixels' own format, and the sum of 1024x1024 is off by up to 1 in 100,000.
    """
    pixels, alone = widen_lone_column(pixels, weight, stride, padding, dilation)
    fixed = None if bias is None else bias.detach()
    made = torch.conv2d(pixels, weight, fixed, stride, padding, dilation, groups)
    made = made[..., :1] if alone else made
    if bias is None or not (bias.requires_grad and torch.is_grad_enabled()):
        return made
    summed: torch.Tensor = _OfBias.apply(made, bias)
    return summed


class _OfBias(Function):
    """A sum with a bias, as it is, that gives the bias its gradient."""

    @staticmethod
    def forward(ctx: Any, made: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(made)  # the same tensor: nothing is copied
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, gradient.sum((0, 2, 3))


def widen_lone_column(
    pixels: torch.Tensor, weight: torch.Tensor, stride: Sizes, padding: Sizes, dilation: Sizes
) -> tuple[torch.Tensor, bool]:
    """Return pixels whose convolution has no lone column, and whether its second is to be dropped.

    oneDNN's kernels for AMX (torch 2.13; bf16, and 8 bits) compute a lone column of outputs wrong
    where the stride across it is above 1. Behind zeros there is a second one, and both are right.
    """
    if pixels.dtype not in _DEFECTIVE or pixels.device.type != "cpu":
        return pixels, False
    _, step = expand_pair(stride)
    _, spacing = expand_pair(dilation)
    _, zeros = expand_pair(padding)
    span = spacing * (weight.shape[-1] - 1) + 1
    reach = pixels.shape[-1] + 2 * zeros - span
    if step > 1 and 0 <= reach < step:
        return functional.pad(pixels, (0, step)), True
    return pixels, False
