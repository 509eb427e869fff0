"""Sync batch norm over tiles: batch normalisation by the statistics of the whole image."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from spbench_core.layout.tiles import Box
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.gradients import allreduce_sum, share_parameters
from spbench_parallel.spatial.moments import Moments, compute_moments
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling


@runtime_checkable
class TileNorm(Protocol):
    """A normalisation of tiles that fused layers can use.

    Attributes:
        tiling: The tiles of its input, which are those of its output.
    """

    tiling: Tiling

    def normalise(self, pixels: torch.Tensor, held: Box) -> torch.Tensor:
        """Return pixels normalised, of which this rank may own only some."""


class SpatialBatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` of an image whose tiles are on different ranks.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. In training, mean
    and variance are those of the whole image, and the gradients of weight and bias too, on every
    rank: one message a rank forward, and one backward. In evaluation nothing is sent; only the
    gradients of weight and bias, where they are asked for, are summed over the tiles. All ranks
    must call forward, and backward, in the same order.

    Args:
        num_features: Channels.
        eps: Added to the variance.
        momentum: The share of a new batch in the running statistics; None for their plain mean.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics; without them, evaluation takes
            those of its batch, as training does.
        tiling: The tiles of the input.
        device: The device of the parameters.
        dtype: The number format of the parameters.

    Attributes:
        output: The tiles of the output, which are those of the input.
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
                training, there is only one value in each channel of the whole batch.
        """
        check_tile(self.tiling, tile)
        return self.normalise(tile, self.tiling.tile)

    def normalise(self, pixels: torch.Tensor, held: Box) -> torch.Tensor:
        """Return pixels, normalised, of which this rank may own only some.

        The statistics are of the pixels that the ranks own; no copy enters them twice.

        Args:
            pixels: ``batch x channels x held.height x held.width``.
            held: The pixels' box in the image; it holds this rank's tile, and may reach beyond it.

        Raises:
            ValueError: In training, there is only one value in each channel of the whole batch.
        """
        mean = self.running_mean
        variance = self.running_var
        if not self.training and mean is not None and variance is not None:
            weight, bias = self._shared_parameters()
            return functional.batch_norm(pixels, mean, variance, weight, bias, eps=self.eps)
        moments = compute_moments(self.tiling, pixels.detach(), held)
        if self.training and mean is not None and variance is not None:
            self._track(mean, variance, moments)
        place = (held, self.tiling)
        normalised: torch.Tensor = _Normalise.apply(
            pixels, self.weight, self.bias, moments, place, self.eps
        )
        return normalised

    def _shared_parameters(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        if not self.affine:
            return None, None
        weight, bias = share_parameters(self.tiling.comm, (self.weight, self.bias))
        return weight, bias

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, moments: Moments) -> None:
        batches = self.num_batches_tracked
        assert batches is not None, "running statistics come with their count"
        batches.add_(1)
        share = 1.0 / float(batches) if self.momentum is None else self.momentum
        mean.mul_(1.0 - share).add_(moments.mean, alpha=share)
        variance.mul_(1.0 - share).add_(moments.unbiased_variance, alpha=share)


class _Normalise(Function):
    """Normalisation of pixels by statistics that depend on the owned ones among them.

    With x the pixels, y the outputs, h = (x - mean) / deviation and sums over all pixels that any
    rank holds, copies included:

        dbias = sum dy,  dweight = sum dy h
        dx = weight / deviation * (dy - (dbias + h dweight) / count)    for a pixel that is owned
        dx = weight / deviation * dy                                    for a copy
    """

    @staticmethod
    def forward(
        ctx: Any,
        pixels: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        moments: Moments,
        place: tuple[Box, Tiling],
        eps: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(pixels, weight)
        ctx.moments = moments
        ctx.place = place
        ctx.eps = eps
        mean = moments.mean
        variance = moments.variance
        return functional.batch_norm(
            pixels, mean, variance, _as(mean, weight), _as(mean, bias), eps=eps
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        pixels, weight = ctx.saved_tensors
        moments: Moments = ctx.moments
        held, tiling = ctx.place
        inverse = (moments.variance + ctx.eps).rsqrt()
        sums = _sums(gradient, pixels, moments.mean, inverse)
        allreduce_sum(tiling.comm, sums)
        wide = _as(inverse, weight)
        dweight, dbias = sums
        parameters = (None, None) if weight is None else sums.to(weight.dtype).unbind()
        if not ctx.needs_input_grad[0]:
            return None, *parameters, None, None, None
        scale = inverse if wide is None else inverse * wide
        share = -scale / moments.count
        owned = functional.batch_norm(
            view_box(pixels, held, tiling.tile),
            moments.mean,
            moments.variance,
            share * dweight,
            share * dbias,
            eps=ctx.eps,
        )
        if held == tiling.tile:
            return _plus_scaled(owned, gradient, scale), *parameters, None, None, None
        through = (gradient * scale[:, None, None]).to(pixels.dtype)
        view_box(through, held, tiling.tile).add_(owned)
        return through, *parameters, None, None, None


def _plus_scaled(total: torch.Tensor, gradient: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Add a gradient to a total, scaled by channel; return the total.

    Where factors have more bits than the gradient, ATen's kernels for the CPU convert one number
    after another, and take 2 to 20 times as long as normalising, which scales as well.
    """
    if gradient.dtype == scale.dtype or is_gpu(gradient.device):
        return total.addcmul_(gradient, scale[:, None, None])
    zeros = torch.zeros_like(scale)
    ones = torch.ones_like(scale)
    # Not `functional.batch_norm`, which rejects an eps of 0 in some versions of torch (2.11).
    scaled = torch.batch_norm(gradient, scale, zeros, zeros, ones, False, 0.0, 0.0, True)
    return total.add_(scaled)


def _sums(
    gradient: torch.Tensor, pixels: torch.Tensor, mean: torch.Tensor, inverse: torch.Tensor
) -> torch.Tensor:
    """Return sum dy h and sum dy of this rank's pixels, ``2 x channels``.

    CUDA's kernels take the number format of the sums from a weight, and sum nothing without one;
    nor do they take a tile without pixels (ATen, native/cuda/Normalization.cuh).
    """
    if pixels.numel() == 0:
        return mean.new_zeros((2, len(mean)))
    ones = torch.ones_like(mean)
    _, products, plain = torch.ops.aten.native_batch_norm_backward(
        gradient, pixels, ones, None, None, mean, inverse, True, 0.0, [False, True, True]
    )
    return torch.stack((products, plain))


def _as(like: torch.Tensor, tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(like.dtype)
