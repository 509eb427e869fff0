"""Sync batch norm over tiles: normalisation by the statistics of the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from mpi4py import MPI
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from spbench_core.layout.tiles import Box
from spbench_parallel.device.host_memory import copy_to_device, get_staging_buffers
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.gradients import allreduce_sum, share_parameters
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of a batch of images, the same on all ranks.

    Attributes:
        mean: The mean per channel; fp32, or fp64 for pixels of fp64.
        variance: Per channel, the mean of the squared distances from the mean.
        count: Values of each channel, over all images and tiles.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: int

    @property
    def unbiased_variance(self) -> torch.Tensor:
        """The unbiased estimate of the variance, with ``count - 1`` in the denominator."""
        return self.variance * (self.count / (self.count - 1))


def compute_moments(tiling: Tiling, pixels: torch.Tensor, box: Box) -> Moments:
    """Return mean and variance over the pixels that the ranks own. Collective.

    Each rank sends the mean and squared distances over its pixels in one message. All ranks
    combine them by Chan's formula, in the same order. Every rank knows the pixel count of the
    others.

    Args:
        tiling: The pixels that each rank owns.
        pixels: ``batch x channels x box.height x box.width``.
        box: Their box in the image; it contains this rank's tile.

    Raises:
        ValueError: There is only one value per channel.
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
    values_by_rank = [batch * tile.height * tile.width for tile in tiles]
    mean_by_rank, squares_by_rank = _gather_moments(
        tiling.comm, _compute_own_moments(view_box(pixels, box, tiling.tile))
    ).unbind(1)
    share_by_rank = torch.tensor(values_by_rank, dtype=torch.float64).unsqueeze(1) / count
    mean = (share_by_rank * mean_by_rank).sum(0)
    variance = squares_by_rank.sum(0) / count + (
        share_by_rank * (mean_by_rank - mean).square()
    ).sum(0)
    wide_dtype = torch.promote_types(pixels.dtype, torch.float32)
    mean, variance = mean.to(wide_dtype), variance.to(wide_dtype)
    if is_gpu(pixels.device):
        mean, variance = copy_to_device(torch.stack((mean, variance)), pixels.device).unbind()
    return Moments(mean, variance, count)


def _compute_own_moments(pixels: torch.Tensor) -> torch.Tensor:
    """Return mean and sum of squared distances of own pixels, ``2 x channels``."""
    wide_dtype = torch.promote_types(pixels.dtype, torch.float32)
    if pixels.numel() == 0:
        return pixels.new_zeros((2, pixels.shape[1]), dtype=wide_dtype)
    axes = (0, 2, 3)
    mean = pixels.mean(axes, keepdim=True, dtype=wide_dtype)
    return torch.stack((mean.flatten(), (pixels - mean).square_().sum(axes)))


def _gather_moments(comm: MPI.Intracomm, values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, ``ranks x ...``, in fp64 on the host."""
    with COMM_STATS.time_exchange():
        on_gpu = is_gpu(values.device)
        values_on_host = get_staging_buffers(values.device).download(values) if on_gpu else values
        values_by_rank = values_on_host.new_empty((comm.size, *values_on_host.shape))
        comm.Allgather(
            [mpi_buffer(values_on_host), MPI.BYTE], [mpi_buffer(values_by_rank), MPI.BYTE]
        )
    return values_by_rank.double()


@runtime_checkable
class TileNorm(Protocol):
    """A normalisation of tiles that fused layers can use.

    Attributes:
        tiling: The tiles of its input and output.
    """

    tiling: Tiling

    def normalise(self, pixels: torch.Tensor, box: Box) -> torch.Tensor:
        """Return normalised pixels, of which this rank may own only some."""


class SpatialBatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` of an image in tiles on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. In training, mean
    and variance are those of the whole image, and so are the gradients of weight and bias, on every
    rank. That takes one message per rank forward and one backward. In evaluation only the gradients
    of weight and bias, if required, are summed over the tiles. All ranks must call forward and
    backward in the same order.

    Args:
        num_features: Channels.
        eps: Added to the variance.
        momentum: The weight of a new batch in the running statistics; None: cumulative mean.
        affine: Whether it has weight and bias.
        track_running_stats: Whether it keeps running statistics. Without them, evaluation uses the
            statistics of its batch, like training.
        tiling: The tiles of the input.
        device: The device of the parameters.
        dtype: The number format of the parameters.

    Attributes:
        output: The tiles of the output, equal to those of the input.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        tiling: Tiling,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype
        )
        self.tiling = self.output = tiling

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile, normalised.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling, or, in
                training, the batch has only one value per channel.
        """
        check_tile(self.tiling, tile)
        return self.normalise(tile, self.tiling.tile)

    def normalise(self, pixels: torch.Tensor, box: Box) -> torch.Tensor:
        """Return normalised pixels, of which this rank may own only some.

        The statistics are those of owned pixels; copies of other ranks' pixels do not count.

        Args:
            pixels: ``batch x channels x box.height x box.width``.
            box: The pixels' box in the image; it contains this rank's tile and may reach beyond
                it.

        Raises:
            ValueError: In training, the batch has only one value per channel.
        """
        mean = self.running_mean
        variance = self.running_var
        if not self.training and mean is not None and variance is not None:
            weight, bias = self._shared_parameters()
            return functional.batch_norm(pixels, mean, variance, weight, bias, eps=self.eps)
        moments = compute_moments(self.tiling, pixels.detach(), box)
        if self.training and mean is not None and variance is not None:
            self._update_running_stats(mean, variance, moments)
        normalised: torch.Tensor = _Normalise.apply(
            pixels, self.weight, self.bias, moments, box, self.tiling, self.eps
        )
        return normalised

    def _shared_parameters(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        if not self.affine:
            return None, None
        weight, bias = share_parameters(self.tiling.comm, (self.weight, self.bias))
        return weight, bias

    def _update_running_stats(
        self, running_mean: torch.Tensor, running_variance: torch.Tensor, moments: Moments
    ) -> None:
        batches = self.num_batches_tracked
        assert batches is not None, "running statistics come with their count"
        batches.add_(1)
        batch_share = 1.0 / float(batches) if self.momentum is None else self.momentum
        running_mean.mul_(1.0 - batch_share).add_(moments.mean, alpha=batch_share)
        running_variance.mul_(1.0 - batch_share).add_(moments.unbiased_variance, alpha=batch_share)


class _Normalise(Function):
    """Normalisation by statistics that depend on the owned pixels.

    With x the pixels, y the outputs, h = (x - mean) / deviation and sums over all pixels that any
    rank holds, copies included:

        dbias = sum dy,  dweight = sum dy h
        dx = weight / deviation * (dy - (dbias + h dweight) / count)    for an owned pixel
        dx = weight / deviation * dy                                    for a copy
    """

    @staticmethod
    def forward(
        ctx: Any,
        pixels: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        moments: Moments,
        box: Box,
        tiling: Tiling,
        eps: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(pixels, weight)
        ctx.moments = moments
        ctx.box = box
        ctx.tiling = tiling
        ctx.eps = eps
        mean = moments.mean
        variance = moments.variance
        return functional.batch_norm(
            pixels,
            mean,
            variance,
            _convert_dtype(mean, weight),
            _convert_dtype(mean, bias),
            eps=eps,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: torch.Tensor) -> Any:
        pixels, weight = ctx.saved_tensors
        moments: Moments = ctx.moments
        box: Box = ctx.box
        tiling: Tiling = ctx.tiling
        inverse_deviation = (moments.variance + ctx.eps).rsqrt()
        sums = _sum_gradients(output_gradient, pixels, moments.mean, inverse_deviation)
        allreduce_sum(tiling.comm, sums)
        wide_weight = _convert_dtype(inverse_deviation, weight)
        dweight, dbias = sums
        parameter_gradients = (None, None) if weight is None else sums.to(weight.dtype).unbind()
        if not ctx.needs_input_grad[0]:
            return None, *parameter_gradients, None, None, None, None
        scale = inverse_deviation if wide_weight is None else inverse_deviation * wide_weight
        correction_scale = -scale / moments.count
        correction = functional.batch_norm(
            view_box(pixels, box, tiling.tile),
            moments.mean,
            moments.variance,
            correction_scale * dweight,
            correction_scale * dbias,
            eps=ctx.eps,
        )
        if box == tiling.tile:
            return (
                _add_scaled(correction, output_gradient, scale),
                *parameter_gradients,
                None,
                None,
                None,
                None,
            )
        input_gradient = (output_gradient * scale[:, None, None]).to(pixels.dtype)
        view_box(input_gradient, box, tiling.tile).add_(correction)
        return input_gradient, *parameter_gradients, None, None, None, None


def _add_scaled(total: torch.Tensor, gradient: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Add a gradient, scaled per channel, to a total in place; return the total.

    If the factors have more bits than the gradient, ATen's CPU kernels convert number by number and
    take 2 to 20 times as long as `batch_norm`, which scales too.
    """
    if gradient.dtype == scale.dtype or is_gpu(gradient.device):
        return total.addcmul_(gradient, scale[:, None, None])
    zeros = torch.zeros_like(scale)
    ones = torch.ones_like(scale)
    # Not `functional.batch_norm`, which rejects an eps of 0 in some versions of torch (2.11).
    scaled_gradient = torch.batch_norm(gradient, scale, zeros, zeros, ones, False, 0.0, 0.0, True)
    return total.add_(scaled_gradient)


def _sum_gradients(
    output_gradient: torch.Tensor,
    pixels: torch.Tensor,
    mean: torch.Tensor,
    inverse_deviation: torch.Tensor,
) -> torch.Tensor:
    """Return sum dy h and sum dy of this rank's pixels, ``2 x channels``.

    CUDA kernels take the number format of the sums from the weight, and return no sums without a
    weight. They also reject a tile without pixels (ATen, native/cuda/Normalization.cuh).
    """
    if pixels.numel() == 0:
        return mean.new_zeros((2, len(mean)))
    ones = torch.ones_like(mean)
    _, products, sums = torch.ops.aten.native_batch_norm_backward(
        output_gradient,
        pixels,
        ones,
        None,
        None,
        mean,
        inverse_deviation,
        True,
        0.0,
        [False, True, True],
    )
    return torch.stack((products, sums))


def _convert_dtype(like: torch.Tensor, tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(like.dtype)
