"""References of operators with a window, in plain torch by regions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from mpi4py import MPI

from spbench_core.layout.tiles import Box
from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    Rounding,
    ScaleError,
    length,
    worst_pixel,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors
from spbench_parallel.full_size.regions import (
    Regions,
    fetch,
    sum_over_ranks,
    view_box,
)
from spbench_parallel.full_size.window_operators import (
    ForwardPass,
    WindowOperator,
    compute_forward,
    create_window_operator,
)
from spbench_parallel.full_size.winograd import REACH, amplify, fits_winograd, may_use_winograd
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.pool import SpatialAvgPool2d, TiledPool

STRIPS = 4.0
"""Strips of a tile that are convolved separately, before and after its borders have arrived.

The gradients of that many strips may meet in one pixel.
"""


class _ImageInput(NamedTuple):
    """One image of a call, in the region that this rank's outputs read.

    Attributes:
        part: The slice of the image in the batch.
        pixels: The pixels of the region, ``1 x channels x rows x cols``, in float64.
        gradient: The gradient of the region's outputs, in float64; None in inference.
    """

    part: slice
    pixels: torch.Tensor
    gradient: torch.Tensor | None


class WindowCheck:
    """The check of a tiled convolution or pool, call by call.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks of its tiles, used only by these checks.
        work: The number format of its products.
        rounding: The rounding of the format.
        errors: Collects the errors.
    """

    def __init__(
        self,
        name: str,
        module: SpatialConv2d | TiledPool,
        comm: MPI.Intracomm,
        work: torch.dtype,
        rounding: Rounding,
        errors: OperatorErrors,
    ) -> None:
        self._name = name
        self._module = module
        self._comm = comm
        self._work = work
        self._rounding = rounding
        self._errors = errors
        self._scale_error_by_label: dict[str, ScaleError] = {}
        owned = module.tiled.tiling.partition
        owned_outputs = module.tiled.output.partition
        self._size = owned.height, owned.width
        self._window = create_window_operator(module, work)
        self._winograd = (
            isinstance(module, SpatialConv2d)
            and fits_winograd(self._window.axes)
            and may_use_winograd(module.weight.device, rounding)
        )
        self._regions = Regions.from_tiles(
            self._window.axes,
            [owned.tile(rank) for rank in range(comm.size)],
            [owned_outputs.tile(rank) for rank in range(comm.size)],
            (owned_outputs.height, owned_outputs.width),
            margin=REACH if self._winograd else 0,
        )

    def check(self, call: OperatorCall) -> None:
        """Compute a call again, and compare. All ranks of the tiles must call it together."""
        regions = self._regions
        rank = self._comm.rank
        fill = self._window.fill
        pixels = fetch(self._comm, call.pixels, regions.tiles, regions.inputs, fill)
        gradients = None
        if call.output_gradient is not None:
            gradients = fetch(
                self._comm, call.output_gradient, regions.owned_outputs, regions.outputs
            )

        sums = _ParameterSums.zeros(self._parameters())
        # Weights, and so their norm, change from step to step.
        window = create_window_operator(self._module, self._work)
        self._scale_error_by_label.clear()

        if not regions.outputs[rank].empty:
            for image in range(pixels.shape[0]):
                part = slice(image, image + 1)
                gradient = None if gradients is None else gradients[part].double()
                self._check_image(
                    window, call, _ImageInput(part, pixels[part].double(), gradient), sums
                )
        if gradients is not None:
            self._compare_parameters(call, sums)
        for label, scale_error in self._scale_error_by_label.items():
            self._errors.worst_scale.add(scale_error.error, 1.0, f"{self._name}: {label}")

    def _parameters(self) -> dict[str, torch.Tensor]:
        parameters = self._module.named_parameters(recurse=False)
        return {name: parameter.detach() for name, parameter in parameters}

    def _check_image(
        self, window: WindowOperator, call: OperatorCall, image: _ImageInput, sums: _ParameterSums
    ) -> None:
        """Compare an image's output and input gradient.

        Add its gradients of the parameters.
        """
        forward = self._compute_forward(window, image)
        self._check_output(window, call, image, forward)
        if image.gradient is None:
            return
        if call.input_gradient is not None:
            self._check_input_gradient(window, call.input_gradient, image, forward)
        if forward.parameters:
            self._add_parameter_gradients(image.gradient, forward, sums)

    def _compute_forward(self, window: WindowOperator, image: _ImageInput) -> ForwardPass:
        parameters = [
            parameter.to(self._work).double() for parameter in self._parameters().values()
        ]
        return compute_forward(
            window,
            image.pixels,
            self._inside_image(image.pixels.device),
            parameters,
            learns=image.gradient is not None,
        )

    def _check_output(
        self, window: WindowOperator, call: OperatorCall, image: _ImageInput, forward: ForwardPass
    ) -> None:
        """Compare the outputs that this rank owns."""
        region = self._regions.outputs[self._comm.rank]
        own_outputs = self._regions.owned_outputs[self._comm.rank]
        reach = forward.reach.detach()
        output = call.output[image.part]
        expected = view_box(forward.output.detach(), region, own_outputs)
        magnitude = view_box(reach, region, own_outputs).sqrt()[:, 0] * window.gain
        single_magnitude = magnitude
        if self._winograd:
            # Only bounds of single pixels grow. Errors of Winograd's algorithm have either sign, so
            # that those of scales keep their bounds.
            single_magnitude = (
                view_box(amplify(reach), region, own_outputs).sqrt()[:, 0] * window.gain
            )
        bound = self._rounding.bound(
            length(expected), single_magnitude, window.terms, expected.shape[1]
        )
        self._compare_pixels(output, expected, bound, own_outputs, "output")
        self._compare_scale("output", output, expected, magnitude, window.terms)

    def _check_input_gradient(
        self,
        window: WindowOperator,
        input_gradient: torch.Tensor,
        image: _ImageInput,
        forward: ForwardPass,
    ) -> None:
        """Compare the gradients of this rank's pixels."""
        gradient = image.gradient
        assert gradient is not None, "only calls in training have one"
        region = self._regions.inputs[self._comm.rank]
        tile = self._regions.tiles[self._comm.rank]
        inner = tile.intersect(region)
        # The graph is used again for the gradients of the parameters.
        (region_gradient,) = torch.autograd.grad(
            forward.output, image.pixels, gradient, retain_graph=bool(forward.parameters)
        )
        # The transpose of `count`: for each pixel, the squares of all outputs that read it.
        (region_squares,) = torch.autograd.grad(
            forward.reach, forward.squares, gradient.square().sum(1, keepdim=True)
        )

        # Pixels that no output reads have a gradient of zero.
        expected = region_gradient.new_zeros((1, region_gradient.shape[1], tile.height, tile.width))
        squares = expected[:, :1].clone()
        view_box(expected, tile, inner).copy_(view_box(region_gradient, region, inner))
        view_box(squares, tile, inner).copy_(view_box(region_squares, region, inner))
        magnitude = squares.sqrt()[:, 0] * window.gain
        single_magnitude = magnitude
        if self._winograd:
            view_box(squares, tile, inner).copy_(view_box(amplify(region_squares), region, inner))
            single_magnitude = squares.sqrt()[:, 0] * window.gain

        bound = self._rounding.bound(
            length(expected), single_magnitude, window.back_terms, expected.shape[1]
        )
        own_gradient = input_gradient[image.part]
        self._compare_pixels(own_gradient, expected, bound, tile, "input gradient")
        self._compare_scale("input gradient", own_gradient, expected, magnitude, window.back_terms)

    def _add_parameter_gradients(
        self, gradient: torch.Tensor, forward: ForwardPass, sums: _ParameterSums
    ) -> None:
        """Add the gradients of the parameters through the outputs that this rank owns."""
        region = self._regions.outputs[self._comm.rank]
        own_outputs = self._regions.owned_outputs[self._comm.rank]
        own_gradient = torch.zeros_like(gradient)
        view_box(own_gradient, region, own_outputs).copy_(view_box(gradient, region, own_outputs))
        gradients = torch.autograd.grad(forward.output, forward.parameters, own_gradient)
        taps = float(view_box(forward.reach.detach(), region, own_outputs).sum())
        sums.add(
            gradients,
            taps,
            float(own_gradient.square().sum()),
            own_outputs.height * own_outputs.width,
        )

    def _inside_image(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return a mask of the region's pixels that are inside the image."""
        if not isinstance(self._module, SpatialAvgPool2d):
            return ()
        box = self._regions.inputs[self._comm.rank]
        inside = torch.zeros((1, 1, box.height, box.width), dtype=torch.float64)
        image = Box((0, self._size[0]), (0, self._size[1]))
        view_box(inside, box, box.intersect(image)).fill_(1.0)
        return (inside.to(device),)

    def _compare_scale(
        self,
        label: str,
        values: torch.Tensor,
        expected: torch.Tensor,
        magnitude: torch.Tensor,
        terms: float,
    ) -> None:
        """Add an image to the error of a tensor's scale."""
        # The magnitude is that of all channels of a pixel together: each has an equal share.
        per_channel = magnitude[:, None] / math.sqrt(expected.shape[1])
        scale = self._scale_error_by_label.setdefault(label, ScaleError(self._rounding))
        parts = per_channel / math.sqrt(max(1.0, terms))
        pool = isinstance(self._module, TiledPool)
        scale.add(values.detach(), expected, per_channel, parts, terms if pool else STRIPS)

    def _compare_pixels(
        self,
        values: torch.Tensor,
        expected: torch.Tensor,
        bound: torch.Tensor,
        box: Box,
        label: str,
    ) -> None:
        error, (row, col) = worst_pixel(values.detach(), expected, bound)
        position = f"row {row + box.rows[0]}, column {col + box.cols[0]}"
        self._errors.worst_element.add(error, 1.0, f"{self._name}: {label} at {position}")

    def _compare_parameters(self, call: OperatorCall, sums: _ParameterSums) -> None:
        """Compare the gradients of the parameters with their sum over all tiles."""
        names = list(self._parameters())
        local_sums = torch.cat(
            [gradient.reshape(-1) for gradient in sums.gradients] + [sums.numbers]
        )
        total = sum_over_ranks(self._comm, local_sums)
        taps, squares, count = total[-3:].tolist()
        for name, shape_like in zip(names, sums.gradients, strict=True):
            expected, total = total[: shape_like.numel()], total[shape_like.numel() :]
            gradient = call.parameter_gradients.get(name)
            if gradient is None:
                self._errors.worst_element.add(
                    math.inf, 1.0, f"{self._name}: {name} has no gradient"
                )
                continue
            reach = taps if shape_like.dim() > 1 else count
            size = math.sqrt(reach * squares)
            bound = self._rounding.bound(
                expected.norm(), expected.new_tensor(size), count, expected.numel()
            )
            # Torch sums over all pixels in another order, with errors that may have one sign.
            bound = bound + STATISTICS_SLACK * self._rounding.sums * size
            flat = gradient.detach().double().reshape(-1).cpu()
            label = f"gradient of {name}"
            error = (flat - expected).norm()
            self._errors.worst_element.add(
                float(error / (bound + 1e-300)), 1.0, f"{self._name}: {label}"
            )
            per_value = size / math.sqrt(expected.numel())
            parts = per_value / math.sqrt(max(1.0, count))
            scale = self._scale_error_by_label.setdefault(label, ScaleError(self._rounding))
            scale.add(flat, expected, per_value, parts, STRIPS)


@dataclass(slots=True)
class _ParameterSums:
    """Gradients of the parameters summed over images, and the size of their terms.

    Attributes:
        gradients: The sums, one per parameter, in float64 on the host.
        numbers: The sums of squares of pixels by window and of gradients, and the number of
            outputs.
    """

    gradients: list[torch.Tensor]
    numbers: torch.Tensor

    @classmethod
    def zeros(cls, parameters: dict[str, torch.Tensor]) -> _ParameterSums:
        zeros = [
            torch.zeros(parameter.shape, dtype=torch.float64) for parameter in parameters.values()
        ]
        return cls(zeros, torch.zeros(3, dtype=torch.float64))

    def add(
        self, gradients: tuple[torch.Tensor, ...], taps: float, squares: float, count: int
    ) -> None:
        for total, gradient in zip(self.gradients, gradients, strict=True):
            total.add_(gradient.cpu())
        self.numbers += torch.tensor([taps, squares, count], dtype=torch.float64)
