"""References of operators that need every pixel: batch normalisation, mean, and all-gather."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.tiles import Box
from spbench_parallel.full_size.bound import (
    SLACK,
    STATISTICS_SLACK,
    Block,
    OperatorErrors,
    Rounding,
    ScaleError,
    blocks,
    length,
    worst_pixel,
)
from spbench_parallel.full_size.regions import (
    ReferenceMoments,
    fetch,
    gather_values,
    sum_over_ranks,
    sum_reversed,
)
from spbench_parallel.full_size.windows import OperatorCall
from spbench_parallel.spatial.all_gather import AllGather
from spbench_parallel.spatial.global_pool import SpatialGlobalAvgPool2d

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
        self._name = name
        self._module = module
        self._comm = comm
        self._sharers = list(sharers)
        self._rounding = rounding
        self._errors = errors

    def check(self, call: OperatorCall) -> None:
        """Compute a call again, and compare. All ranks must call it together."""
        module = self._module
        if call.output_gradient is None:
            mean = module.running_mean
            variance = module.running_var
            assert mean is not None, "it is tracked"
            assert variance is not None, "it is tracked"
            moments = ReferenceMoments(mean.double(), variance.double(), 1.0)
        else:
            moments = call.moments or self._moments(call.pixels)
        inverse = (moments.variance + module.eps).rsqrt()
        scale = inverse * module.weight.detach().double()
        self._output(call, moments.mean, scale)
        if call.output_gradient is not None:
            norm = _Norm(moments.mean, inverse, scale, moments.count)
            self._gradients(call, call.output_gradient, norm)

    def _output(self, call: OperatorCall, mean: torch.Tensor, scale: torch.Tensor) -> None:
        bias = _by_channel(self._module.bias.detach().double())
        errors = _MapErrors(self._rounding, call.output, call.pixels)
        for block in errors.blocks():
            pixels = block.select(call.pixels).double()
            wanted = _by_channel(scale) * (pixels - _by_channel(mean)) + bias
            near = pixels.abs() + _by_channel(mean.abs())
            errors.add(block, wanted, _by_channel(scale.abs()) * near + bias.abs())
        errors.tell(self._errors, self._name, "output")

    def check_statistics(
        self, call: OperatorCall, before: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        """Compare running statistics with those that follow from before.

        All ranks must call it.
        """
        module = self._module
        moments = self._moments(call.pixels)
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
            self._errors.single.add(error, 1.0, f"{self._name}: running {what}")

    def _moments(self, pixels: torch.Tensor) -> ReferenceMoments:
        parts = list(blocks(pixels.shape))
        channels = pixels.shape[1]
        sums = pixels.new_zeros(channels + 1, dtype=torch.float64)
        sums[-1] = pixels.numel() / channels
        for block in parts:
            sums[:-1] += block.select(pixels).double().sum(_AXES)
        sums = sum_over_ranks(self._comm, sums).to(pixels.device)
        mean = sums[:-1] / sums[-1]
        count = float(sums[-1])
        squares = torch.zeros_like(mean)
        for block in parts:
            squares += (block.select(pixels).double() - _by_channel(mean)).square_().sum(_AXES)
        variance = sum_over_ranks(self._comm, squares).to(pixels.device) / count
        return ReferenceMoments(mean, variance, count)

    def _gradients(self, call: OperatorCall, gradient: torch.Tensor, norm: _Norm) -> None:
        own = torch.zeros((4, gradient.shape[1]), dtype=torch.float64, device=gradient.device)
        for block in blocks(gradient.shape):
            one = block.select(gradient).double()
            products = one * norm.distances(block.select(call.pixels))
            terms = products, one, products.abs(), one.abs()
            own += torch.stack([each.sum(_AXES) for each in terms])
        every = gather_values(self._comm, own)
        if call.input_gradient is not None:
            errors = _MapErrors(self._rounding, call.input_gradient, call.pixels)
            sums = sum_reversed(every).to(gradient.device)
            # Torch rounds a tile's sums to the tile's format where its pixels do not lie in a row.
            of_tiles = every[:, :2].square().sum(0).sqrt().to(gradient.device)
            for block in errors.blocks():
                distances = norm.distances(block.select(call.pixels))
                errors.add(
                    block, *norm.back(block.select(gradient).double(), distances, sums, of_tiles)
                )
            errors.tell(self._errors, self._name, "input gradient")
        shared = sum_reversed(every[self._sharers])
        for index, name in enumerate(("weight", "bias")):
            found = call.parameter_gradients.get(name)
            if found is None:
                self._errors.single.add(float("inf"), 1.0, f"{self._name}: {name} has no gradient")
                continue
            rounded = SLACK * self._rounding.work * every[self._sharers, index].norm()
            wide = STATISTICS_SLACK * self._rounding.sums * shared[2 + index].norm()
            bound = rounded + wide + 1e-300
            wanted = shared[index]
            what = f"{self._name}: gradient of {name}"
            flat = found.double().cpu()
            self._errors.single.add(float((flat - wanted).norm() / bound), 1.0, what)
            whole = ScaleError(self._rounding)
            parts = every[self._sharers, index].square().sum(0).sqrt()
            whole.add(flat, wanted, shared[2 + index], parts)
            self._errors.scales.add(whole.error, 1.0, what)


@dataclass(frozen=True, slots=True)
class _Norm:
    """A batch normalisation by channel: mean, 1 / deviation, that times the weight, and count."""

    mean: torch.Tensor
    inverse: torch.Tensor
    scale: torch.Tensor
    count: float

    def distances(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return pixels with mean 0 and variance 1."""
        return _by_channel(self.inverse) * (pixels.double() - _by_channel(self.mean))

    def back(
        self,
        gradient: torch.Tensor,
        distances: torch.Tensor,
        sums: torch.Tensor,
        of_tiles: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return a block's gradient, the sums of magnitudes, and of these what tiles rounded.

        Args:
            gradient: That of the output.
            distances: The block's pixels with mean 0 and variance 1.
            sums: By channel, gradients of weight and bias, and the sums of their magnitudes.
            of_tiles: By channel, what tiles add to the first two.
        """
        by_weight, by_bias, of_weight, of_bias = map(_by_channel, sums.unbind())
        scale = _by_channel(self.scale)
        far = distances.abs()
        wanted = scale * (gradient - (by_bias + distances * by_weight) / self.count)
        sizes = scale.abs() * (gradient.abs() + (of_bias + far * of_weight) / self.count)
        weight, bias = map(_by_channel, of_tiles.unbind())
        return wanted, sizes, scale.abs() * (bias + far * weight) / self.count


class _MapErrors:
    """The errors of a normalisation's map, block by block.

    Args:
        rounding: The rounding of the format.
        found: The map.
        pixels: The operator's input, of the same shape.
    """

    def __init__(self, rounding: Rounding, found: torch.Tensor, pixels: torch.Tensor) -> None:
        self._rounding = rounding
        self._found = found.detach()
        self._same = found.shape == pixels.shape
        self._error = 0.0 if self._same else math.inf
        self._place = (0, 0)
        self._scale = ScaleError(rounding)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks to add, none of a map of another shape than its input."""
        return blocks(self._found.shape if self._same else (0, 0, 0, 0))

    def add(
        self,
        block: Block,
        wanted: torch.Tensor,
        sizes: torch.Tensor,
        rounded: torch.Tensor | None = None,
    ) -> None:
        """Take in a block.

        Args:
            block: The block.
            wanted: Its values in float64.
            sizes: The sums of magnitudes that they are made of.
            rounded: The parts of them that tiles rounded.
        """
        found = block.select(self._found)
        magnitude = length(sizes) * STATISTICS_SLACK
        # What is rounded to the format is the result, and those parts: all else is in the wide one.
        norm = length(wanted) if rounded is None else length(wanted) + length(rounded)
        bound = self._rounding.bound(norm, magnitude, math.inf, wanted.shape[1])
        error, (row, col) = worst_pixel(found, wanted, bound)
        if error > self._error:
            self._error = error
            self._place = (block.rows.start + row, col)
        if rounded is None:
            self._scale.add(found, wanted, sizes)
            return
        # Sums that were rounded are off alike in all pixels of a channel.
        alike = rounded * (self._rounding.work / self._rounding.sums / STATISTICS_SLACK)
        self._scale.add(found, wanted, sizes + alike, sizes)

    def tell(self, errors: OperatorErrors, name: str, what: str) -> None:
        """Have the errors of operators take in those of all blocks."""
        row, col = self._place
        at = f"{what} at row {row}, column {col} of its tile"
        errors.single.add(self._error, 1.0, f"{name}: {at}")
        errors.scales.add(self._scale.error, 1.0, f"{name}: {what}")


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
        self._name = name
        self._module = module
        self._comm = comm
        self._rounding = rounding
        self._errors = errors

    def check(self, call: OperatorCall) -> None:
        """Compute a call again, and compare. All ranks of the tiles must call it together."""
        partition = self._module.tiling.partition
        image = partition.image
        pixels = call.pixels
        tiles = [partition.tile(rank) for rank in range(self._comm.size)]
        gradient = call.output_gradient
        if isinstance(self._module, AllGather):
            whole = fetch(self._comm, pixels, tiles, [image] * self._comm.size)
            self._note(call.output, whole.double(), None, "output")
            back = None if gradient is None else _crop(gradient.double(), tiles[self._comm.rank])
        else:
            area = image.height * image.width
            values = pixels.double()
            both = torch.stack((values.sum((2, 3)), values.abs().sum((2, 3)))) / area
            mean, sizes = sum_over_ranks(self._comm, both).to(pixels.device)[..., None, None]
            self._note(call.output, mean, sizes, "output")
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
        self._errors.single.add(error, 1.0, f"{self._name}: {what}")
        if sizes is not None:
            scale = ScaleError(self._rounding)
            # Of a mean, all pixels of a channel have one gradient, with one rounding.
            one, other, size = (
                each.mean((2, 3)) for each in (found.detach().double(), wanted, sizes)
            )
            scale.add(one, other, size)
            self._errors.scales.add(scale.error, 1.0, f"{self._name}: {what}")


def _crop(values: torch.Tensor, box: Box) -> torch.Tensor:
    return values[:, :, slice(*box.rows), slice(*box.cols)]


def _by_channel(values: torch.Tensor) -> torch.Tensor:
    return values[:, None, None]
