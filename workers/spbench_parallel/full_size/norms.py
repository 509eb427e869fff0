"""References of batch normalisation over ranks, with separate sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch import nn

from spbench_parallel.full_size.bound import (
    SLACK,
    STATISTICS_SLACK,
    Block,
    Rounding,
    ScaleError,
    blocks,
    compute_pixel_norms,
    find_worst_pixel,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors, ReferenceMoments
from spbench_parallel.full_size.regions import (
    gather_values,
    sum_over_ranks,
    sum_reversed,
)

_AXES = (0, 2, 3)


class NormCheck:
    """The check of a batch normalisation over ranks, with separate sums.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks of the images that it normalises together.
        sharing_ranks: The ranks among these over which it sums gradients of its parameters.
        rounding: The rounding of the format.
        errors: Collects the errors.
    """

    def __init__(
        self,
        name: str,
        module: nn.BatchNorm2d,
        comm: MPI.Intracomm,
        sharing_ranks: Sequence[int],
        rounding: Rounding,
        errors: OperatorErrors,
    ) -> None:
        self._name = name
        self._module = module
        self._comm = comm
        self._sharing_ranks = list(sharing_ranks)
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
            moments = call.moments or self._compute_moments(call.pixels)
        inverse_deviation = (moments.variance + module.eps).rsqrt()
        scale = inverse_deviation * module.weight.detach().double()
        self._check_output(call, moments.mean, scale)
        if call.output_gradient is not None:
            norm = _Norm(moments.mean, inverse_deviation, scale, moments.count)
            self._check_gradients(call, call.output_gradient, norm)

    def _check_output(self, call: OperatorCall, mean: torch.Tensor, scale: torch.Tensor) -> None:
        bias = _expand_channels(self._module.bias.detach().double())
        errors = _MapErrors(self._rounding, call.output, call.pixels)
        for block in errors.blocks():
            pixels = block.select(call.pixels).double()
            expected = _expand_channels(scale) * (pixels - _expand_channels(mean)) + bias
            magnitude = pixels.abs() + _expand_channels(mean.abs())
            errors.add(block, expected, _expand_channels(scale.abs()) * magnitude + bias.abs())
        errors.report_to(self._errors, self._name, "output")

    def check_statistics(
        self, call: OperatorCall, before: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        """Compare running statistics with an update of those before.

        All ranks must call it.
        """
        module = self._module
        moments = self._compute_moments(call.pixels)
        call.moments = moments
        momentum = module.momentum
        unbiased = moments.variance * moments.count / (moments.count - 1)
        running = module.running_mean, module.running_var
        for label, old, batch_statistic, updated in zip(
            ("mean", "variance"), before, (moments.mean, unbiased), running, strict=True
        ):
            assert momentum is not None, "torch's own default"
            assert updated is not None, "it is tracked"
            expected = (1 - momentum) * old.double() + momentum * batch_statistic
            magnitude_norm = (
                (1 - momentum) * old.double().abs() + momentum * batch_statistic.abs()
            ).norm()
            if label == "mean":
                magnitude_norm = magnitude_norm + moments.variance.sqrt().norm()
            bound = STATISTICS_SLACK * self._rounding.sum_epsilon * magnitude_norm + 1e-300
            error = float((updated.double() - expected).norm() / bound)
            self._errors.worst_element.add(error, 1.0, f"{self._name}: running {label}")

    def _compute_moments(self, pixels: torch.Tensor) -> ReferenceMoments:
        pixel_blocks = list(blocks(pixels.shape))
        channels = pixels.shape[1]
        sums_and_count = pixels.new_zeros(channels + 1, dtype=torch.float64)
        sums_and_count[-1] = pixels.numel() / channels
        for block in pixel_blocks:
            sums_and_count[:-1] += block.select(pixels).double().sum(_AXES)
        sums_and_count = sum_over_ranks(self._comm, sums_and_count).to(pixels.device)
        mean = sums_and_count[:-1] / sums_and_count[-1]
        count = float(sums_and_count[-1])
        squares = torch.zeros_like(mean)
        for block in pixel_blocks:
            squares += (block.select(pixels).double() - _expand_channels(mean)).square_().sum(_AXES)
        variance = sum_over_ranks(self._comm, squares).to(pixels.device) / count
        return ReferenceMoments(mean, variance, count)

    def _check_gradients(
        self, call: OperatorCall, output_gradient: torch.Tensor, norm: _Norm
    ) -> None:
        local_sums = torch.zeros(
            (4, output_gradient.shape[1]), dtype=torch.float64, device=output_gradient.device
        )
        for block in blocks(output_gradient.shape):
            block_gradient = block.select(output_gradient).double()
            products = block_gradient * norm.distances(block.select(call.pixels))
            terms = products, block_gradient, products.abs(), block_gradient.abs()
            local_sums += torch.stack([term.sum(_AXES) for term in terms])
        sums_by_rank = gather_values(self._comm, local_sums)

        if call.input_gradient is not None:
            errors = _MapErrors(self._rounding, call.input_gradient, call.pixels)
            sums = sum_reversed(sums_by_rank).to(output_gradient.device)
            # Torch rounds a tile's sums to the format of the tile if its pixels are not contiguous.
            tile_norms = sums_by_rank[:, :2].square().sum(0).sqrt().to(output_gradient.device)
            for block in errors.blocks():
                distances = norm.distances(block.select(call.pixels))
                errors.add(
                    block,
                    *norm.compute_gradient(
                        block.select(output_gradient).double(), distances, sums, tile_norms
                    ),
                )
            errors.report_to(self._errors, self._name, "input gradient")

        shared_sums = sum_reversed(sums_by_rank[self._sharing_ranks])
        for index, name in enumerate(("weight", "bias")):
            parameter_gradient = call.parameter_gradients.get(name)
            if parameter_gradient is None:
                self._errors.worst_element.add(
                    math.inf, 1.0, f"{self._name}: {name} has no gradient"
                )
                continue
            rounding_bound = (
                SLACK
                * self._rounding.work_epsilon
                * sums_by_rank[self._sharing_ranks, index].norm()
            )
            sum_bound = (
                STATISTICS_SLACK * self._rounding.sum_epsilon * shared_sums[2 + index].norm()
            )
            bound = rounding_bound + sum_bound + 1e-300
            expected = shared_sums[index]
            label = f"{self._name}: gradient of {name}"
            flat_gradient = parameter_gradient.double().cpu()
            self._errors.worst_element.add(
                float((flat_gradient - expected).norm() / bound), 1.0, label
            )
            scale_error = ScaleError(self._rounding)
            part_norms = sums_by_rank[self._sharing_ranks, index].square().sum(0).sqrt()
            scale_error.add(flat_gradient, expected, shared_sums[2 + index], part_norms)
            self._errors.worst_scale.add(scale_error.error, 1.0, label)


@dataclass(frozen=True, slots=True)
class _Norm:
    """Statistics of a batch norm per channel, in float64.

    ``inverse_deviation`` is 1 / deviation, and ``scale`` is that times the weight.
    """

    mean: torch.Tensor
    inverse_deviation: torch.Tensor
    scale: torch.Tensor
    count: float

    def distances(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return pixels normalised to mean 0 and variance 1."""
        return _expand_channels(self.inverse_deviation) * (
            pixels.double() - _expand_channels(self.mean)
        )

    def compute_gradient(
        self,
        output_gradient: torch.Tensor,
        distances: torch.Tensor,
        sums: torch.Tensor,
        tile_norms: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return a block's input gradient, its magnitudes, and their rounded parts.

        Args:
            output_gradient: The gradient of the output.
            distances: The block's pixels, normalised to mean 0 and variance 1.
            sums: Per channel, gradients of weight and bias, and the sums of their magnitudes.
            tile_norms: Per channel, the norms over tiles of the parts of the first two.
        """
        weight_grad, bias_grad, weight_size, bias_size = map(_expand_channels, sums.unbind())
        scale = _expand_channels(self.scale)
        sizes_of_distances = distances.abs()
        expected = scale * (output_gradient - (bias_grad + distances * weight_grad) / self.count)
        sizes = scale.abs() * (
            output_gradient.abs() + (bias_size + sizes_of_distances * weight_size) / self.count
        )
        weight_tile_norm, bias_tile_norm = map(_expand_channels, tile_norms.unbind())
        return (
            expected,
            sizes,
            scale.abs() * (bias_tile_norm + sizes_of_distances * weight_tile_norm) / self.count,
        )


class _MapErrors:
    """The errors of a normalisation's map, computed block by block.

    Args:
        rounding: The rounding of the format.
        values: The map.
        pixels: The operator's input, of the same shape.
    """

    def __init__(self, rounding: Rounding, values: torch.Tensor, pixels: torch.Tensor) -> None:
        self._rounding = rounding
        self._values = values.detach()
        self._same_shape = values.shape == pixels.shape
        self._error = 0.0 if self._same_shape else math.inf
        self._position = (0, 0)
        self._scale_error = ScaleError(rounding)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks to add; no block if the map and its input differ in shape."""
        return blocks(self._values.shape if self._same_shape else (0, 0, 0, 0))

    def add(
        self,
        block: Block,
        expected: torch.Tensor,
        sizes: torch.Tensor,
        rounded_parts: torch.Tensor | None = None,
    ) -> None:
        """Add a block.

        Args:
            block: The block.
            expected: Its values in float64.
            sizes: The sums of magnitudes of their terms.
            rounded_parts: The parts of these sums that tiles rounded.
        """
        values = block.select(self._values)
        magnitude = compute_pixel_norms(sizes) * STATISTICS_SLACK
        # Only the output and these parts are rounded to the format. The rest is in the wide format.
        norm = (
            compute_pixel_norms(expected)
            if rounded_parts is None
            else compute_pixel_norms(expected) + compute_pixel_norms(rounded_parts)
        )
        bound = self._rounding.bound(norm, magnitude, math.inf, expected.shape[1])
        error, (row, col) = find_worst_pixel(values, expected, bound)
        if error > self._error:
            self._error = error
            self._position = (block.rows.start + row, col)
        if rounded_parts is None:
            self._scale_error.add(values, expected, sizes)
            return
        # Errors of rounded sums are the same in all pixels of a channel.
        common = rounded_parts * (
            self._rounding.work_epsilon / self._rounding.sum_epsilon / STATISTICS_SLACK
        )
        self._scale_error.add(values, expected, sizes + common, sizes)

    def report_to(self, errors: OperatorErrors, name: str, label: str) -> None:
        """Add the errors of all blocks to those of operators."""
        row, col = self._position
        position = f"row {row}, column {col} of its tile"
        errors.worst_element.add(self._error, 1.0, f"{name}: {label} at {position}")
        errors.worst_scale.add(self._scale_error.error, 1.0, f"{name}: {label}")


def _expand_channels(values: torch.Tensor) -> torch.Tensor:
    return values[:, None, None]
