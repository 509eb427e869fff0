"""Group normalisation over tiles: by the statistics of each image's groups of channels, whole."""

from __future__ import annotations

import torch
from torch import nn

from spbench_parallel.spatial.gradients import differentiable_sum, share_parameters
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling


class SpatialGroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` of images whose tiles are on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. Mean and variance
    are those of a whole image's group of channels, and the gradients of weight and bias are those
    of the whole images on every rank: two messages a rank forward, and as many backward. With as
    many groups as channels it is instance normalisation. All ranks must call forward, and backward,
    in the same order.

    Args:
        num_groups: Groups of channels.
        num_channels: Channels.
        eps: Added to the variance.
        affine: Whether there are weight and bias.
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
            ValueError: The tile has not the shape that the tiling says.
        """
        check_tile(self.tiling, tile)
        comm = self.tiling.comm
        (images, channels, rows, cols) = tile.shape
        wide = tile.to(torch.promote_types(tile.dtype, torch.float32))
        groups = wide.reshape(images, self.num_groups, -1)
        area = self.tiling.partition.height * self.tiling.partition.width
        count = area * channels // self.num_groups
        # The mean first, and then the distances from it: their squares lose no digits.
        distances = groups - differentiable_sum(comm, groups.sum(2, keepdim=True)) / count
        variance = differentiable_sum(comm, distances.square().sum(2, keepdim=True)) / count
        made = (distances * (variance + self.eps).rsqrt()).reshape(images, channels, rows, cols)
        if self.affine:
            weight, bias = share_parameters(comm, (self.weight, self.bias))
            made = made * weight[:, None, None] + bias[:, None, None]
        return made.to(tile.dtype)
