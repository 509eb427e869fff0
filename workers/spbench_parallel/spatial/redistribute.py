"""Redistribution of an image from one partition to another."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from spbench_core.layout.partition import Partition, make_redistribution
from spbench_parallel.spatial.gather_cache import GatherCache
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling


class Redistribute(nn.Module):
    """Redistribution from a rank's tile of one partition to its tile of another.

    The tiles of one grid become those of another grid or of other ranks. One of the partitions may
    be a single rank with the whole image. A tile is ``batch x channels x rows x cols``; a rank
    without pixels has ``batch x channels x 0 x 0``, with the batch and channels of the others.
    Backward, gradients are sent in the opposite direction.

    All ranks must call forward and backward in the same order, including those without pixels. If
    the input of one rank requires a gradient, that of every rank must.

    Args:
        source: The tiles of the input.
        target: The tiles of the output.

    Attributes:
        output: The tiles of the output, with the communicator of the input.
        gathers: The gathers that move the tiles.

    Raises:
        ValueError: The two are not of one image and one communicator.
    """

    def __init__(self, source: Tiling, target: Partition) -> None:
        super().__init__()
        self.tiling = source
        self.output = replace(source, partition=target)
        transfers = make_redistribution(source.partition, target)
        self.gathers = GatherCache(source, transfers, [self.output.tile])

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the source.
        """
        check_tile(self.tiling, tile)
        gather = self.gathers.get(tile)
        (part,) = gather.finish(gather.start(tile))
        return part

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        self.gathers.free()
