"""All-gather of tiles: the whole image on every rank."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.gradients import allreduce_sum
from spbench_parallel.spatial.operator import WholeImageOperator
from spbench_parallel.spatial.tiling import Tiling


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, tile: torch.Tensor, tiling: Tiling) -> torch.Tensor:
        ctx.tiling = tiling
        whole = tiling.partition.image
        image = tile.new_zeros((*tile.shape[:2], whole.height, whole.width))
        # One rank has a pixel, all others have zero: their sum is that pixel.
        view_box(image, whole, tiling.tile).copy_(tile)
        allreduce_sum(tiling.comm, image)
        return image

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tiling: Tiling = ctx.tiling
        return view_box(gradient, tiling.partition.image, tiling.tile), None


class AllGather(WholeImageOperator):
    """All-gather of an image whose tiles are on different ranks.

    Input is this rank's tile, ``batch x channels x rows x cols``; output is the image,
    ``batch x channels x height x width``, the same on every rank, in whose memory it must fit.
    All ranks must call forward in the same order.

    As after `SpatialGlobalAvgPool2d`, the layers that follow are computed alike on every rank, and
    so is their gradient: backward each rank takes that of its own tile, and nothing is sent.

    Args:
        tiling: The tiles of the input.
    """

    function = _AllGather
