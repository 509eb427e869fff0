"""Convolution on a device, with workarounds for defects of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from spbench_core.layout.window import expand_pair

Sizes = int | Sequence[int]
"""One number per axis, or one for both."""

_DEFECTIVE_DTYPES = (torch.bfloat16, torch.uint8)  # see `widen_lone_column`


def convolve(
    pixels: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> torch.Tensor:
    """Return the result of `torch.conv2d`, ``batch x channels x rows x cols``.

    Torch sums the gradient of the bias, as it does on CUDA. oneDNN adds pixel by pixel in the
    pixels' number format: its sum over 1024x1024 pixels is off by up to 1 in 100,000.
    """
    pixels, is_widened = widen_lone_column(pixels, weight, stride, padding, dilation)
    detached_bias = None if bias is None else bias.detach()
    outputs = torch.conv2d(pixels, weight, detached_bias, stride, padding, dilation, groups)
    outputs = outputs[..., :1] if is_widened else outputs
    if bias is None or not (bias.requires_grad and torch.is_grad_enabled()):
        return outputs
    biased: torch.Tensor = _BiasGradient.apply(outputs, bias)
    return biased


class _BiasGradient(Function):
    """Identity on outputs that include the bias; backward it sums the bias gradient."""

    @staticmethod
    def forward(ctx: Any, outputs: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(outputs)  # return the same tensor without a copy
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, gradient.sum((0, 2, 3))


def widen_lone_column(
    pixels: torch.Tensor, weight: torch.Tensor, stride: Sizes, padding: Sizes, dilation: Sizes
) -> tuple[torch.Tensor, bool]:
    """Widen pixels so that the outputs have a second column.

    oneDNN's AMX kernels (torch 2.13, bf16 and 8 bits) compute a single column of outputs wrong if
    the stride across it exceeds 1. With zeros appended there is a second column, and both are
    right.

    Returns:
        The pixels, and whether the second column of the outputs must be dropped.
    """
    if pixels.dtype not in _DEFECTIVE_DTYPES or pixels.device.type != "cpu":
        return pixels, False
    _, col_stride = expand_pair(stride)
    _, col_dilation = expand_pair(dilation)
    _, col_padding = expand_pair(padding)
    kernel_span = col_dilation * (weight.shape[-1] - 1) + 1
    stride_reach = pixels.shape[-1] + 2 * col_padding - kernel_span
    if col_stride > 1 and 0 <= stride_reach < col_stride:
        return functional.pad(pixels, (0, col_stride)), True
    return pixels, False
