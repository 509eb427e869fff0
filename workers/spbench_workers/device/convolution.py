"""Convolution on a device, with arguments that its kernels compute right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

Pair = int | Sequence[int]


_DEFECTIVE = (torch.bfloat16, torch.uint8)


def convolve(
    pixels: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> torch.Tensor:
    """Return what `torch.conv2d` is to give, ``batch x channels x rows x cols``."""
    pixels, alone = widened(pixels, weight, stride, padding, dilation)
    made = torch.conv2d(pixels, weight, bias, stride, padding, dilation, groups)
    return made[..., :1] if alone else made


def widened(
    pixels: torch.Tensor, weight: torch.Tensor, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[torch.Tensor, bool]:
    """Return pixels whose convolution has no lone column, and whether its second is to be dropped.

    oneDNN's kernels for AMX (torch 2.13; bf16, and 8 bits) compute a lone column of outputs wrong
    where the stride across it is above 1. Behind zeros there is a second one, and both are right.
    """
    step = _across(stride)
    span = _across(dilation) * (weight.shape[-1] - 1) + 1
    reach = pixels.shape[-1] + 2 * _across(padding) - span
    host = pixels.device.type == "cpu" and pixels.dtype in _DEFECTIVE
    if host and step > 1 and 0 <= reach < step:
        return functional.pad(pixels, (0, step)), True
    return pixels, False


def _across(value: Pair) -> int:
    return value if isinstance(value, int) else value[1]
