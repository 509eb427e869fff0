"""References of operators that need every pixel: mean, and all-gather."""

from __future__ import annotations

import math

import torch
from mpi4py import MPI

from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    Rounding,
    ScaleError,
    compute_pixel_norms,
    find_worst_pixel,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors
from spbench_parallel.full_size.regions import (
    fetch,
    sum_over_ranks,
    view_box,
)
from spbench_parallel.spatial.replicated import AllGather, SpatialGlobalAvgPool2d


class WholeImageCheck:
    """The check of a mean or an all-gather over tiles.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks of its tiles, used only by these checks.
        rounding: The rounding of the format.
        errors: Collects the errors.
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
            full_image = fetch(self._comm, pixels, tiles, [image] * self._comm.size)
            self._compare(call.output, full_image.double(), None, "output")
            input_gradient = (
                None
                if gradient is None
                else view_box(gradient.double(), image, tiles[self._comm.rank])
            )
        else:
            area = image.height * image.width
            values = pixels.double()
            mean_and_size = torch.stack((values.sum((2, 3)), values.abs().sum((2, 3)))) / area
            mean, sizes = sum_over_ranks(self._comm, mean_and_size).to(pixels.device)[
                ..., None, None
            ]
            self._compare(call.output, mean, sizes, "output")
            shape = pixels.shape
            input_gradient = None if gradient is None else (gradient.double() / area).expand(shape)
        if input_gradient is not None and call.input_gradient is not None:
            sizes = None if isinstance(self._module, AllGather) else input_gradient.abs()
            self._compare(call.input_gradient, input_gradient, sizes, "input gradient")

    def _compare(
        self, values: torch.Tensor, expected: torch.Tensor, sizes: torch.Tensor | None, label: str
    ) -> None:
        """Add an error; without sizes of terms, the values must be equal."""
        bound = torch.zeros_like(expected[:, 0])
        if sizes is not None:
            magnitude = STATISTICS_SLACK * compute_pixel_norms(sizes)
            bound = self._rounding.bound(
                compute_pixel_norms(expected), magnitude, math.inf, expected.shape[1]
            )
        error, _ = find_worst_pixel(values.detach(), expected, bound)
        self._errors.worst_element.add(error, 1.0, f"{self._name}: {label}")
        if sizes is not None:
            scale_error = ScaleError(self._rounding)
            # In a mean, all pixels of a channel have the same gradient, with the same rounding:
            # their errors do not average out, so each channel counts as one element.
            scale_error.add(
                values.detach().double().mean((2, 3)),
                expected.mean((2, 3)),
                sizes.mean((2, 3)),
            )
            self._errors.worst_scale.add(scale_error.error, 1.0, f"{self._name}: {label}")
