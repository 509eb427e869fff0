"""Sync batch norm: one batch for the images of all members, or of all replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.tiles import Box
from spbench_core.models.parts import MapShape, NetworkPiece
from spbench_parallel.models.builders import DenseBuilder, SpatialBuilder
from spbench_parallel.models.imported.layouts import check_norm
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.gradients import differentiable_sum, share_parameters
from spbench_parallel.spatial.tiling import Tiling

MOMENTUM = 0.1
"""The share of a new batch in the running statistics; torch's default."""


class SyncBatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` of a batch with images on different ranks.

    Input and output are this rank's images, ``images x channels x rows x cols``; each rank has one
    or more. In training, mean and variance are those of all images. The gradients of weight and
    bias are this rank's share, like those of all other layers of the stage: their sum over the
    ranks is the gradient of the batch. All ranks must call forward, and backward, in the same
    order.

    Args:
        num_features: Channels.
        comm: The ranks.
    """

    def __init__(self, num_features: int, *, comm: MPI.Intracomm) -> None:
        super().__init__(num_features, momentum=MOMENTUM)
        self.comm = comm

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return this rank's normalised images."""
        if not self.training:
            return super().forward(images)
        return self._normalise(images, lambda pixels: pixels, (self.weight, self.bias))

    def _normalise(
        self,
        pixels: torch.Tensor,
        select_owned: Callable[[torch.Tensor], torch.Tensor],
        parameters: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Normalise pixels by the statistics of those that ``select_owned`` returns."""
        wide_pixels = pixels.to(torch.promote_types(pixels.dtype, torch.float32))
        # Two passes: squares of distances from the mean lose no digits, unlike squares of values.
        owned_pixels = select_owned(wide_pixels)
        local_count = wide_pixels.new_full((1,), owned_pixels.numel() // owned_pixels.shape[1])
        sums_and_count = differentiable_sum(
            self.comm, torch.cat((owned_pixels.sum((0, 2, 3)), local_count))
        )
        count = sums_and_count[-1].detach()
        distances_from_mean = wide_pixels - (sums_and_count[:-1] / count)[:, None, None]
        variance = (
            differentiable_sum(self.comm, select_owned(distances_from_mean).square().sum((0, 2, 3)))
            / count
        )
        self._update_statistics((sums_and_count[:-1] / count).detach(), variance.detach(), count)
        weight, bias = parameters
        scale = (variance + self.eps).rsqrt() * weight
        normalised = distances_from_mean * scale[:, None, None] + bias[:, None, None]
        return normalised.to(pixels.dtype)

    @torch.no_grad()
    def _update_statistics(
        self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor
    ) -> None:
        # In fp64 on the device: reading the count on the host would wait for the device.
        wide_count = count.double()
        momentum = self.momentum
        assert momentum is not None, "norms without momentum are rejected"
        unbiased = variance * (wide_count / (wide_count - 1))
        for running, batch_statistic in ((self.running_mean, mean), (self.running_var, unbiased)):
            assert running is not None, "no argument turns running statistics off"
            running.lerp_(batch_statistic.to(running.dtype), momentum)
        assert self.num_batches_tracked is not None, "it comes with them"
        self.num_batches_tracked.add_(1)


class SyncTileBatchNorm2d(SyncBatchNorm2d):
    """Sync batch norm of tiles: one batch for all images of several groups of ranks.

    Input and output are this rank's tile, ``images x channels x rows x cols``. The gradients of
    weight and bias are summed over the tiles, like those of all tiled operators.

    Args:
        num_features: Channels.
        comm: The ranks of all groups.
        tiling: The tiles of this rank's group.
    """

    def __init__(self, num_features: int, *, comm: MPI.Intracomm, tiling: Tiling) -> None:
        super().__init__(num_features, comm=comm)
        self.tiling = tiling

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's normalised tile."""
        return self.normalise(tile, self.tiling.tile)

    def normalise(self, pixels: torch.Tensor, box: Box) -> torch.Tensor:
        """Return normalised pixels, of which this rank may own only some.

        Args:
            pixels: ``images x channels x box.height x box.width``.
            box: The pixels' box in the image, which contains this rank's tile.
        """
        if not self.training:
            return nn.BatchNorm2d.forward(self, pixels)
        parameters = share_parameters(self.tiling.comm, (self.weight, self.bias))
        return self._normalise(
            pixels, lambda values: view_box(values, box, self.tiling.tile), parameters
        )


@dataclass(frozen=True)
class SyncDenseBuilder(DenseBuilder):
    """A builder of torch's modules, with sync batch norm over the members' images.

    Attributes:
        comm: The ranks that share the images of each micro-batch.
    """

    comm: MPI.Intracomm

    def norm(self, shape: MapShape) -> nn.Module:
        return SyncBatchNorm2d(shape.channels, comm=self.comm)

    def piece(self, piece: NetworkPiece) -> nn.Module:
        built = super().piece(piece)
        for name, module in list(built.named_modules()):
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                built.set_submodule(name, convert_to_sync(name, module, self.comm))
        return built


def convert_to_sync(name: str, module: nn.Module, comm: MPI.Intracomm) -> SyncBatchNorm2d:
    """Return the sync batch norm that replaces a batch norm of a user-defined network.

    Raises:
        CannotRunError: It is not over images, or lacks weights or running statistics.
    """
    check_norm(name, module)
    assert isinstance(module, nn.BatchNorm2d), "other norms are rejected"
    norm = SyncBatchNorm2d(module.num_features, comm=comm)
    norm.eps = module.eps
    norm.momentum = module.momentum
    norm.load_state_dict(module.state_dict())
    # Other operators of the stage may have the same parameters.
    norm.weight = module.weight
    norm.bias = module.bias
    return norm


@dataclass(frozen=True)
class SyncSpatialBuilder(SpatialBuilder):
    """A builder of tiled operators, with sync batch norm over all replicas' images.

    Attributes:
        comm: The ranks of all tiles of all replicas.
    """

    comm: MPI.Intracomm

    def norm(self, shape: MapShape) -> nn.Module:
        return SyncTileBatchNorm2d(shape.channels, comm=self.comm, tiling=self._tiling(shape))

    def make_tiled_norm(self, module: nn.BatchNorm2d, tiling: Tiling) -> nn.Module:
        check_norm("a batch normalisation", module)
        norm = SyncTileBatchNorm2d(module.num_features, comm=self.comm, tiling=tiling)
        norm.eps = module.eps
        norm.momentum = module.momentum
        return norm
