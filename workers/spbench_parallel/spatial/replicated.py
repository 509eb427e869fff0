"""From what every rank has back to tiles: a tile of a whole image, and vectors that meet tiles.

What is computed alike on every rank has one gradient, the loss' own. Where it meets tiles, each
rank knows the part that its tile gives: the parts are summed over the ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.gradients import allreduce_sum
from spbench_parallel.spatial.tiling import Tiling


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
        whole = gradient.new_zeros(ctx.shape)
        view_box(whole, tiling.partition.image, tiling.tile).copy_(gradient)
        allreduce_sum(tiling.comm, whole)
        return whole, None


class OwnTile(nn.Module):
    """This rank's tile of an image that every rank has.

    Input is the image, ``batch x channels x height x width``, the same on every rank; output is
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


class _BesideTiles(Function):
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
    """Values that every rank has, for an operator that takes them beside tiles.

    They are the same on every rank, and stay as they are; their gradient is the sum over all tiles.
    All ranks must call backward in the same order.

    Args:
        tiling: The tiles.
    """

    def __init__(self, *, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values."""
        beside: torch.Tensor = _BesideTiles.apply(values, self.tiling)
        return beside
