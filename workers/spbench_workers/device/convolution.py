"""Convolution on a device, with arguments that its kernels compute right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

Pair = int | Sequence[int]


def convolve(
    pixels: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> torch.Tensor:
    """Return the convolution of `torch.conv2d`, ``batch x channels x rows x cols``.

    oneDNN's bf16 kernels for AMX (torch 2.13) compute a single column of outputs wrong where the
    stride across it is above 1. With a second column, which is dropped, it is right.
    """
    spare = _spare_columns(pixels, weight, _across(stride), _across(padding), _across(dilation))
    if spare:
        pixels = functional.pad(pixels, (0, spare))
    made = torch.conv2d(pixels, weight, bias, stride, padding, dilation, groups)
    return made[..., :1] if spare else made


def _spare_columns(
    pixels: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, dilation: int
) -> int:
    """Return the columns of zeros to append, so that there is no single column of outputs."""
    if stride == 1 or pixels.device.type != "cpu" or pixels.dtype != torch.bfloat16:
        return 0
    span = dilation * (weight.shape[-1] - 1) + 1
    return stride if 0 <= pixels.shape[-1] + 2 * padding - span < stride else 0


def _across(value: Pair) -> int:
    return value if isinstance(value, int) else value[1]
