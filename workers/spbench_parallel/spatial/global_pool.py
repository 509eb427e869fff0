"""Global average pooling over tiles: the mean of the whole image on every rank."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_parallel.spatial.gradients import allreduce_sum
from spbench_parallel.spatial.operator import WholeImageOperator
from spbench_parallel.spatial.tiling import Tiling


class _Mean(Function):
    @staticmethod
    def forward(ctx: Any, tile: torch.Tensor, tiling: Tiling) -> torch.Tensor:
        ctx.shape = tile.shape
        ctx.area = tiling.partition.height * tiling.partition.width
        # Numbers of 16 bits are added in fp32: their sums have more digits than they hold.
        wide = torch.promote_types(tile.dtype, torch.float32)
        total = tile.sum((2, 3), keepdim=True, dtype=wide)
        allreduce_sum(tiling.comm, total)
        mean: torch.Tensor = total / ctx.area
        return mean.to(tile.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (gradient / ctx.area).expand(ctx.shape), None


class SpatialGlobalAvgPool2d(WholeImageOperator):
    """`torch.nn.AdaptiveAvgPool2d(1)` of an image whose tiles are on different ranks.

    Input is this rank's tile, ``batch x channels x rows x cols``; output is the mean over the whole
    image, ``batch x channels x 1 x 1``, the same on every rank. All ranks must call forward in the
    same order.

    The layers that follow are computed alike on every rank, and so is their gradient: that of the
    loss, once, and not a share of it. Backward each rank takes it as it is; nothing is sent, and
    nothing is summed. The parameters of layers that follow have their whole gradient on every rank
    too.

    Args:
        tiling: The tiles of the input.
    """

    function = _Mean
