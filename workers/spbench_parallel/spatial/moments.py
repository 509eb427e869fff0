"""Mean and variance of each channel over all tiles of an image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_core.layout.tiles import Box
from spbench_parallel.device.host_memory import copy_to_device, get_host_memory
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of a batch of images, the same on all ranks.

    Attributes:
        mean: The mean by channel; fp32, or fp64 for pixels of fp64.
        variance: By channel, the mean of the squared distances from the mean.
        count: Values of each channel, over all images and tiles.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: int

    @property
    def unbiased_variance(self) -> torch.Tensor:
        """The unbiased estimate of the variance, with ``count - 1`` in the denominator."""
        return self.variance * (self.count / (self.count - 1))


def compute_moments(tiling: Tiling, pixels: torch.Tensor, held: Box) -> Moments:
    """Return mean and variance over the pixels that the ranks own. All ranks must call it.

    Each rank sends mean and squared distances of its own pixels, in one message; they are combined
    by Chan's formula, on all ranks in the same order. All ranks know the number of pixels of each.

    Args:
        tiling: The pixels that each rank owns.
        pixels: ``batch x channels x held.height x held.width``.
        held: Their box in the image; it holds this rank's tile.

    Raises:
        ValueError: There is only one value in each channel.
    """
    partition = tiling.partition
    batch = pixels.shape[0]
    count = batch * partition.height * partition.width
    if count < 2:
        raise ValueError(
            f"rank {tiling.comm.rank} got a batch of {count} value a channel; batch norm in "
            "training needs more than 1: give it a larger batch or image, or call eval()"
        )
    tiles = [partition.tile(rank) for rank in range(partition.size)]
    counts = [batch * tile.height * tile.width for tile in tiles]
    means, squares = _everyones(tiling.comm, _own(view_box(pixels, held, tiling.tile))).unbind(1)
    shares = torch.tensor(counts, dtype=torch.float64).unsqueeze(1) / count
    mean = (shares * means).sum(0)
    variance = squares.sum(0) / count + (shares * (means - mean).square()).sum(0)
    wide = torch.promote_types(pixels.dtype, torch.float32)
    mean, variance = mean.to(wide), variance.to(wide)
    if is_gpu(pixels.device):
        mean, variance = copy_to_device(torch.stack((mean, variance)), pixels.device).unbind()
    return Moments(mean, variance, count)


def _own(pixels: torch.Tensor) -> torch.Tensor:
    """Return mean and sum of squared distances of this rank's pixels, ``2 x channels``."""
    wide = torch.promote_types(pixels.dtype, torch.float32)
    if pixels.numel() == 0:
        return pixels.new_zeros((2, pixels.shape[1]), dtype=wide)
    axes = (0, 2, 3)
    mean = pixels.mean(axes, keepdim=True, dtype=wide)
    return torch.stack((mean.flatten(), (pixels - mean).square_().sum(axes)))


def _everyones(comm: MPI.Intracomm, values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, ``ranks x ...``, in fp64 on the host."""
    with COMM_STATS.time_exchange():
        on_gpu = is_gpu(values.device)
        own = get_host_memory(values.device).fetch(values) if on_gpu else values
        received = own.new_empty((comm.size, *own.shape))
        comm.Allgather([mpi_buffer(own), MPI.BYTE], [mpi_buffer(received), MPI.BYTE])
    return received.double()
