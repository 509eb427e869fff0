"""Group normalisation over tiles, by the statistics of the whole images."""

from __future__ import annotations

import torch
from torch import nn

from spbench_parallel.spatial.gradients import differentiable_sum, share_parameters
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling


class SpatialGroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` of images in tiles on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. Mean and variance
    are those of a channel group of a whole image. The gradients of weight and bias are those of the
    whole images, on every rank. That takes two messages per rank forward, and two backward. With
    one group per channel it is instance normalisation. All ranks must call forward and backward in
    the same order.

    Args:
        num_groups: Groups of channels.
        num_channels: Channels.
        eps: Added to the variance.
        affine: Whether it has weight and bias.
        tiling: The tiles of the input.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        tiling: Tiling,
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine)
        self.tiling = tiling

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile, normalised.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        comm = self.tiling.comm
        (images, channels, rows, cols) = tile.shape
        wide_tile = tile.to(torch.promote_types(tile.dtype, torch.float32))
        groups = wide_tile.reshape(images, self.num_groups, -1)
        image_pixels = self.tiling.partition.height * self.tiling.partition.width
        values_per_group = image_pixels * channels // self.num_groups
        # In two passes: squares of distances from the mean do not lose digits.
        distances_from_mean = (
            groups - differentiable_sum(comm, groups.sum(2, keepdim=True)) / values_per_group
        )
        variance = (
            differentiable_sum(comm, distances_from_mean.square().sum(2, keepdim=True))
            / values_per_group
        )
        normalised = (distances_from_mean * (variance + self.eps).rsqrt()).reshape(
            images, channels, rows, cols
        )
        if self.affine:
            weight, bias = share_parameters(comm, (self.weight, self.bias))
            normalised = normalised * weight[:, None, None] + bias[:, None, None]
        return normalised.to(tile.dtype)
