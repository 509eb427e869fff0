"""Conversion between tiles and values that are the same on every rank.

Values that every rank computes alike have one gradient, that of the loss. If such values are
combined with tiles, each rank computes the part of the gradient from its tile, and the parts are
summed over the ranks.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.gradients import allreduce_sum
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling


class WholeImageOperator(nn.Module):
    """An operator over tiles with the same output on every rank.

    Args:
        tiling: The tiles of the input.

    Attributes:
        function: The autograd function; it takes a tile and the tiling.
    """

    function: ClassVar[type[Function]]

    def __init__(self, *, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return the output.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        output: torch.Tensor = self.function.apply(tile, self.tiling)
        return output


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, tile: torch.Tensor, tiling: Tiling) -> torch.Tensor:
        ctx.tiling = tiling
        image_box = tiling.partition.image
        image = tile.new_zeros((*tile.shape[:2], image_box.height, image_box.width))
        # Exactly one rank has a pixel and the others have zero, so the sum is the pixel.
        view_box(image, image_box, tiling.tile).copy_(tile)
        allreduce_sum(tiling.comm, image)
        return image

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tiling: Tiling = ctx.tiling
        return view_box(gradient, tiling.partition.image, tiling.tile), None


class AllGather(WholeImageOperator):
    """All-gather of an image in tiles on different ranks.

    Input is this rank's tile, ``batch x channels x rows x cols``. Output is the image, ``batch x
    channels x height x width``, the same on every rank; it must fit into each rank's memory. All
    ranks must call forward in the same order.

    All ranks compute the following layers alike, and so their gradients, as after
    `SpatialGlobalAvgPool2d`. Therefore each rank takes its tile of the gradient in backward,
    without a message.

    Args:
        tiling: The tiles of the input.
    """

    function = _AllGather


class _Mean(Function):
    @staticmethod
    def forward(ctx: Any, tile: torch.Tensor, tiling: Tiling) -> torch.Tensor:
        ctx.shape = tile.shape
        ctx.area = tiling.partition.height * tiling.partition.width
        # 16-bit numbers are added in fp32, because their format cannot represent the sum.
        sum_dtype = torch.promote_types(tile.dtype, torch.float32)
        pixel_sums = tile.sum((2, 3), keepdim=True, dtype=sum_dtype)
        allreduce_sum(tiling.comm, pixel_sums)
        mean: torch.Tensor = pixel_sums / ctx.area
        return mean.to(tile.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (gradient / ctx.area).expand(ctx.shape), None


class SpatialGlobalAvgPool2d(WholeImageOperator):
    """`torch.nn.AdaptiveAvgPool2d(1)` of an image in tiles on different ranks.

    Input is this rank's tile, ``batch x channels x rows x cols``. Output is the mean over the whole
    image, ``batch x channels x 1 x 1``, the same on every rank. All ranks must call forward in the
    same order.

    All ranks compute the following layers alike. Their gradient is that of the loss on every rank,
    not a share of it. Therefore backward uses it unchanged: it sends and sums nothing. The
    parameters of following layers also have their complete gradient on every rank.

    Args:
        tiling: The tiles of the input.
    """

    function = _Mean


class _OwnTile(Function):
    @staticmethod
    def forward(ctx: Any, image: torch.Tensor, tiling: Tiling) -> torch.Tensor:
        ctx.tiling = tiling
        ctx.shape = image.shape
        return view_box(image, tiling.partition.image, tiling.tile).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tiling: Tiling = ctx.tiling
        image_gradient = gradient.new_zeros(ctx.shape)
        view_box(image_gradient, tiling.partition.image, tiling.tile).copy_(gradient)
        allreduce_sum(tiling.comm, image_gradient)
        return image_gradient, None


class OwnTile(nn.Module):
    """This rank's tile of an image that every rank has.

    Input is the image, ``batch x channels x height x width``, the same on every rank. Output is
    this rank's tile. All ranks must call backward in the same order.

    Args:
        tiling: The tiles.
    """

    def __init__(self, *, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the tile."""
        tile: torch.Tensor = _OwnTile.apply(image, self.tiling)
        return tile


class _SumGradient(Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, tiling: Tiling) -> torch.Tensor:
        ctx.tiling = tiling
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        total = gradient.contiguous().clone()
        allreduce_sum(ctx.tiling.comm, total)
        return total, None


class ReplicatedValues(nn.Module):
    """Values that every rank has, as an input of an operator that also reads tiles.

    The values are unchanged; their gradient is summed over all tiles. All ranks must call backward
    in the same order.

    Args:
        tiling: The tiles.
    """

    def __init__(self, *, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values."""
        output: torch.Tensor = _SumGradient.apply(values, self.tiling)
        return output
