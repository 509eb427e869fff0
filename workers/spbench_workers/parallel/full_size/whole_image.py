"""References of operators that need every pixel: batch normalisation, mean, and all-gather."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.tiles import Box
from spbench_workers.parallel.full_size.bound import (
    SLACK,
    STATISTICS_SLACK,
    OperatorErrors,
    Rounding,
    ScaleError,
    length,
    worst_pixel,
)
from spbench_workers.parallel.full_size.regions import fetch
from spbench_workers.parallel.full_size.sums import (
    Moments,
    added,
    everyones,
    from_last_to_first,
)
from spbench_workers.parallel.full_size.windows import Call
from spbench_workers.spatial.all_gather import AllGather
from spbench_workers.spatial.global_pool import SpatialGlobalAvgPool2d

_AXES = (0, 2, 3)


class NormCheck:
    """The check of a batch normalisation over ranks, by sums of its own.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks over whose images it is.
        sharers: Of these, the ranks whose gradients of its parameters it sums.
        rounding: The rounding of the format.
        errors: Take in the errors.
    """

    def __init__(
        self,
        name: str,
        module: nn.BatchNorm2d,
        comm: MPI.Intracomm,
        sharers: Sequence[int],
        rounding: Rounding,
        errors: OperatorErrors,
    ) -> None:
        self._name, self._module, self._comm, self._sharers = name, module, comm, list(sharers)
        self._rounding, self._errors = rounding, errors

    def check(self, call: Call) -> None:
        """Compute a call again, and compare. All ranks must call it together."""
        module, pixels = self._module, call.pixels.double()
        if call.output_gradient is None:
            mean, variance = module.running_mean, module.running_var
            assert mean is not None, "it is tracked"
            assert variance is not None, "it is tracked"
            moments = Moments(mean.double(), variance.double(), 1.0)
        else:
            moments = call.moments or self._moments(pixels)
        inverse = (moments.variance + module.eps).rsqrt()
        weight, bias = module.weight.detach().double(), module.bias.detach().double()
        distances = _by_channel(inverse) * (pixels - _by_channel(moments.mean))
        wanted = _by_channel(weight) * distances + _by_channel(bias)
        near = pixels.abs() + _by_channel(moments.mean.abs())
        sizes = _by_channel((weight * inverse).abs()) * near + _by_channel(bias.abs())
        self._note(call.found, wanted, sizes, "output")
        gradient = call.output_gradient
        if gradient is not None:
            self._gradients(call, gradient.double(), distances, moments.count, inverse * weight)

    def check_statistics(self, call: Call, before: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Compare running statistics with those that follow from before. All ranks must call it."""
        module, moments = self._module, self._moments(call.pixels.double())
        call.moments = moments
        share = module.momentum
        unbiased = moments.variance * moments.count / (moments.count - 1)
        now = module.running_mean, module.running_var
        for what, old, new, found in zip(
            ("mean", "variance"), before, (moments.mean, unbiased), now, strict=True
        ):
            assert share is not None, "torch's own default"
            assert found is not None, "it is tracked"
            wanted = (1 - share) * old.double() + share * new
            size = ((1 - share) * old.double().abs() + share * new.abs()).norm()
            if what == "mean":
                size = size + moments.variance.sqrt().norm()
            bound = STATISTICS_SLACK * self._rounding.sums * size + 1e-300
            error = float((found.double() - wanted).norm() / bound)
            self._errors.single.note(error, f"{self._name}: running {what}")

    def _moments(self, pixels: torch.Tensor) -> Moments:
        own = pixels.new_full((1,), pixels.numel() / pixels.shape[1])
        sums = from_last_to_first(self._comm, torch.cat((pixels.sum(_AXES), own)))
        sums = sums.to(pixels.device)
        mean, count = sums[:-1] / sums[-1], float(sums[-1])
        squares = (pixels - _by_channel(mean)).square().sum(_AXES)
        variance = from_last_to_first(self._comm, squares).to(pixels.device) / count
        return Moments(mean, variance, count)

    def _gradients(
        self,
        call: Call,
        gradient: torch.Tensor,
        distances: torch.Tensor,
        count: float,
        scale: torch.Tensor,
    ) -> None:
        products = gradient * distances
        own = [products.sum(_AXES), gradient.sum(_AXES)]
        own += [products.abs().sum(_AXES), gradient.abs().sum(_AXES)]
        every = everyones(self._comm, torch.stack(own))
        by_weight, by_bias, of_weight, of_bias = added(every).to(gradient.device).unbind()
        inner = _by_channel(by_bias) + distances * _by_channel(by_weight)
        wanted = _by_channel(scale) * (gradient - inner / count)
        around = _by_channel(of_bias) + distances.abs() * _by_channel(of_weight)
        sizes = _by_channel(scale.abs()) * (gradient.abs() + around / count)
        if call.input_gradient is not None:
            # Torch rounds a tile's sums to the tile's format where its pixels do not lie in a row.
            of_tiles = every[:, :2].square().sum(0).sqrt().to(gradient.device)
            rounded = _by_channel(of_tiles[1]) + distances.abs() * _by_channel(of_tiles[0])
            near = _by_channel(scale.abs()) * rounded / count
            self._note(call.input_gradient, wanted, sizes, "input gradient", near)
        shared = added(every[self._sharers])
        for index, name in enumerate(("weight", "bias")):
            found = call.parameter_gradients.get(name)
            if found is None:
                self._errors.single.note(float("inf"), f"{self._name}: {name} has no gradient")
                continue
            rounded = SLACK * self._rounding.work * every[self._sharers, index].norm()
            wide = STATISTICS_SLACK * self._rounding.sums * shared[2 + index].norm()
            bound = rounded + wide + 1e-300
            wanted, what = shared[index], f"{self._name}: gradient of {name}"
            flat = found.double().cpu()
            self._errors.single.note(float((flat - wanted).norm() / bound), what)
            whole = ScaleError(self._rounding)
            parts = every[self._sharers, index].square().sum(0).sqrt()
            whole.add(flat, wanted, shared[2 + index], parts)
            self._errors.scales.note(whole.error, what)

    def _note(
        self,
        found: torch.Tensor,
        wanted: torch.Tensor,
        sizes: torch.Tensor,
        what: str,
        rounded: torch.Tensor | None = None,
    ) -> None:
        magnitude = length(sizes) * STATISTICS_SLACK
        # What is rounded to the format is the result, and those parts: all else is in the wide one.
        norm = length(wanted) if rounded is None else length(wanted) + length(rounded)
        bound = self._rounding.bound(norm, magnitude, math.inf, wanted.shape[1])
        error, (row, col) = worst_pixel(found.detach(), wanted, bound)
        at = f"{what} at row {row}, column {col} of its tile"
        self._errors.single.note(error, f"{self._name}: {at}")
        scale = ScaleError(self._rounding)
        # Sums that were rounded are off alike in all pixels of a channel.
        alike = (
            0.0
            if rounded is None
            else rounded * (self._rounding.work / self._rounding.sums / STATISTICS_SLACK)
        )
        parts = 0.0 if rounded is None else sizes
        scale.add(found.detach(), wanted, sizes + alike, parts)
        self._errors.scales.note(scale.error, f"{self._name}: {what}")


class WholeImageCheck:
    """The check of a mean or an all-gather over tiles.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks of its tiles, for these checks alone.
        rounding: The rounding of the format.
        errors: Take in the errors.
    """

    def __init__(
        self,
        name: str,
        module: SpatialGlobalAvgPool2d | AllGather,
        comm: MPI.Intracomm,
        rounding: Rounding,
        errors: OperatorErrors,
    ) -> None:
        self._name, self._module, self._comm = name, module, comm
        self._rounding, self._errors = rounding, errors

    def check(self, call: Call) -> None:
        """Compute a call again, and compare. All ranks of the tiles must call it together."""
        partition = self._module.tiling.partition
        image, pixels = partition.image, call.pixels
        tiles = [partition.tile(rank) for rank in range(self._comm.size)]
        gradient = call.output_gradient
        if isinstance(self._module, AllGather):
            whole = fetch(self._comm, pixels, tiles, [image] * self._comm.size)
            self._note(call.found, whole.double(), None, "output")
            back = None if gradient is None else _crop(gradient.double(), tiles[self._comm.rank])
        else:
            area = image.height * image.width
            values = pixels.double()
            both = torch.stack((values.sum((2, 3)), values.abs().sum((2, 3)))) / area
            mean, sizes = from_last_to_first(self._comm, both).to(pixels.device)[..., None, None]
            self._note(call.found, mean, sizes, "output")
            shape = pixels.shape
            back = None if gradient is None else (gradient.double() / area).expand(shape)
        if back is not None and call.input_gradient is not None:
            sizes = None if isinstance(self._module, AllGather) else back.abs()
            self._note(call.input_gradient, back, sizes, "input gradient")

    def _note(
        self, found: torch.Tensor, wanted: torch.Tensor, sizes: torch.Tensor | None, what: str
    ) -> None:
        """Take in an error; without sizes of terms, any difference is one."""
        bound = torch.zeros_like(wanted[:, 0])
        if sizes is not None:
            magnitude = STATISTICS_SLACK * length(sizes)
            bound = self._rounding.bound(length(wanted), magnitude, math.inf, wanted.shape[1])
        error, _ = worst_pixel(found.detach(), wanted, bound)
        self._errors.single.note(error, f"{self._name}: {what}")
        if sizes is not None:
            scale = ScaleError(self._rounding)
            # Of a mean, all pixels of a channel have one gradient, with one rounding.
            one, other, size = (
                each.mean((2, 3)) for each in (found.detach().double(), wanted, sizes)
            )
            scale.add(one, other, size)
            self._errors.scales.note(scale.error, f"{self._name}: {what}")


def _crop(values: torch.Tensor, box: Box) -> torch.Tensor:
    return values[:, :, slice(*box.rows), slice(*box.cols)]


def _by_channel(values: torch.Tensor) -> torch.Tensor:
    return values[:, None, None]
