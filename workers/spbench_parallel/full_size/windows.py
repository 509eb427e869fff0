"""References of operators with a window, in plain torch by regions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from mpi4py import MPI

from spbench_core.layout.tiles import Box
from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    Rounding,
    ScaleError,
    compute_pixel_norms,
    find_worst_pixel,
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
    ParameterSums,
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
        batch_slice: The slice of the image in the batch.
        pixels: The pixels of the region, ``1 x channels x rows x cols``, in float64.
        output_gradient: The gradient of the region's outputs, in float64; None in inference.
    """

    batch_slice: slice
    pixels: torch.Tensor
    output_gradient: torch.Tensor | None


class WindowCheck:
    """The check of a tiled convolution or pool, call by call.

    Args:
        name: The operator's name.
        module: The operator.
        comm: The ranks of its tiles, used only by these checks.
        work_dtype: The number format of its products.
        rounding: The rounding of the format.
        errors: Collects the errors.
    """

    def __init__(
        self,
        name: str,
        module: SpatialConv2d | TiledPool,
        comm: MPI.Intracomm,
        work_dtype: torch.dtype,
        rounding: Rounding,
        errors: OperatorErrors,
    ) -> None:
        self._name = name
        self._module = module
        self._comm = comm
        self._work_dtype = work_dtype
        self._rounding = rounding
        self._errors = errors
        self._scale_error_by_label: dict[str, ScaleError] = {}
        owned = module.tiled.tiling.partition
        owned_outputs = module.tiled.output.partition
        self._image_sides = owned.height, owned.width
        self._window = create_window_operator(module, work_dtype)
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

        sums = ParameterSums.zeros(self._parameters())
        # Weights, and so their norm, change from step to step.
        window = create_window_operator(self._module, self._work_dtype)
        self._scale_error_by_label.clear()

        if not regions.outputs[rank].empty:
            for image in range(pixels.shape[0]):
                batch_slice = slice(image, image + 1)
                gradient = None if gradients is None else gradients[batch_slice].double()
                self._check_image(
                    window,
                    call,
                    _ImageInput(batch_slice, pixels[batch_slice].double(), gradient),
                    sums,
                )
        if gradients is not None:
            self._compare_parameters(call, sums)
        for label, scale_error in self._scale_error_by_label.items():
            self._errors.worst_scale.add(scale_error.error, 1.0, f"{self._name}: {label}")

    def _parameters(self) -> dict[str, torch.Tensor]:
        parameters = self._module.named_parameters(recurse=False)
        return {name: parameter.detach() for name, parameter in parameters}

    def _check_image(
        self, window: WindowOperator, call: OperatorCall, image: _ImageInput, sums: ParameterSums
    ) -> None:
        """Compare an image's output and input gradient.

        Add its gradients of the parameters.
        """
        forward = self._compute_forward(window, image)
        self._check_output(window, call, image, forward)
        if image.output_gradient is None:
            return
        if call.input_gradient is not None:
            self._check_input_gradient(window, call.input_gradient, image, forward)
        if forward.parameters:
            self._add_parameter_gradients(image.output_gradient, forward, sums)

    def _compute_forward(self, window: WindowOperator, image: _ImageInput) -> ForwardPass:
        parameters = [
            parameter.to(self._work_dtype).double() for parameter in self._parameters().values()
        ]
        return compute_forward(
            window,
            image.pixels,
            self._inside_image(image.pixels.device),
            parameters,
            learns=image.output_gradient is not None,
        )

    def _check_output(
        self, window: WindowOperator, call: OperatorCall, image: _ImageInput, forward: ForwardPass
    ) -> None:
        """Compare the outputs that this rank owns."""
        region = self._regions.outputs[self._comm.rank]
        own_outputs = self._regions.owned_outputs[self._comm.rank]
        window_squares = forward.window_squares.detach()
        output = call.output[image.batch_slice]
        expected = view_box(forward.output.detach(), region, own_outputs)
        magnitude = view_box(window_squares, region, own_outputs).sqrt()[:, 0] * window.weight_norm
        single_magnitude = magnitude
        if self._winograd:
            # Only bounds of single pixels grow. Errors of Winograd's algorithm have either sign, so
            # that those of scales keep their bounds.
            single_magnitude = (
                view_box(amplify(window_squares), region, own_outputs).sqrt()[:, 0]
                * window.weight_norm
            )
        bound = self._rounding.bound(
            compute_pixel_norms(expected), single_magnitude, window.terms, expected.shape[1]
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
        output_gradient = image.output_gradient
        assert output_gradient is not None, "only calls in training have one"
        region = self._regions.inputs[self._comm.rank]
        tile = self._regions.tiles[self._comm.rank]
        tile_in_region = tile.intersect(region)
        # The graph is used again for the gradients of the parameters.
        (region_gradient,) = torch.autograd.grad(
            forward.output, image.pixels, output_gradient, retain_graph=bool(forward.parameters)
        )
        # The transpose of `sum_windows`: for each pixel, the squares of all outputs that read it.
        (region_squares,) = torch.autograd.grad(
            forward.window_squares,
            forward.pixel_squares,
            output_gradient.square().sum(1, keepdim=True),
        )

        # Pixels that no output reads have a gradient of zero.
        expected = region_gradient.new_zeros((1, region_gradient.shape[1], tile.height, tile.width))
        reader_squares = expected[:, :1].clone()
        view_box(expected, tile, tile_in_region).copy_(
            view_box(region_gradient, region, tile_in_region)
        )
        view_box(reader_squares, tile, tile_in_region).copy_(
            view_box(region_squares, region, tile_in_region)
        )
        magnitude = reader_squares.sqrt()[:, 0] * window.weight_norm
        single_magnitude = magnitude
        if self._winograd:
            view_box(reader_squares, tile, tile_in_region).copy_(
                view_box(amplify(region_squares), region, tile_in_region)
            )
            single_magnitude = reader_squares.sqrt()[:, 0] * window.weight_norm

        bound = self._rounding.bound(
            compute_pixel_norms(expected),
            single_magnitude,
            window.gradient_terms,
            expected.shape[1],
        )
        own_gradient = input_gradient[image.batch_slice]
        self._compare_pixels(own_gradient, expected, bound, tile, "input gradient")
        self._compare_scale(
            "input gradient", own_gradient, expected, magnitude, window.gradient_terms
        )

    def _add_parameter_gradients(
        self, output_gradient: torch.Tensor, forward: ForwardPass, sums: ParameterSums
    ) -> None:
        """Add the gradients of the parameters through the outputs that this rank owns."""
        region = self._regions.outputs[self._comm.rank]
        own_outputs = self._regions.owned_outputs[self._comm.rank]
        own_output_gradient = torch.zeros_like(output_gradient)
        view_box(own_output_gradient, region, own_outputs).copy_(
            view_box(output_gradient, region, own_outputs)
        )
        gradients = torch.autograd.grad(forward.output, forward.parameters, own_output_gradient)
        window_squares = float(view_box(forward.window_squares.detach(), region, own_outputs).sum())
        sums.add(
            gradients,
            window_squares,
            float(own_output_gradient.square().sum()),
            own_outputs.height * own_outputs.width,
        )

    def _inside_image(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return a mask of the region's pixels that are inside the image."""
        if not isinstance(self._module, SpatialAvgPool2d):
            return ()
        box = self._regions.inputs[self._comm.rank]
        inside = torch.zeros((1, 1, box.height, box.width), dtype=torch.float64)
        image = Box((0, self._image_sides[0]), (0, self._image_sides[1]))
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
        channel_magnitude = magnitude[:, None] / math.sqrt(expected.shape[1])
        scale_error = self._scale_error_by_label.setdefault(label, ScaleError(self._rounding))
        part_magnitude = channel_magnitude / math.sqrt(max(1.0, terms))
        is_pool = isinstance(self._module, TiledPool)
        scale_error.add(
            values.detach(),
            expected,
            channel_magnitude,
            part_magnitude,
            terms if is_pool else STRIPS,
        )

    def _compare_pixels(
        self,
        values: torch.Tensor,
        expected: torch.Tensor,
        bound: torch.Tensor,
        box: Box,
        label: str,
    ) -> None:
        error, (row, col) = find_worst_pixel(values.detach(), expected, bound)
        position = f"row {row + box.rows[0]}, column {col + box.cols[0]}"
        self._errors.worst_element.add(error, 1.0, f"{self._name}: {label} at {position}")

    def _compare_parameters(self, call: OperatorCall, sums: ParameterSums) -> None:
        """Compare the gradients of the parameters with their sum over all tiles."""
        names = list(self._parameters())
        local_sums = torch.cat(
            [gradient.reshape(-1) for gradient in sums.gradients] + [sums.numbers]
        )
        remaining_sums = sum_over_ranks(self._comm, local_sums)
        window_squares, gradient_squares, output_count = remaining_sums[-3:].tolist()
        for name, local_gradient in zip(names, sums.gradients, strict=True):
            expected, remaining_sums = (
                remaining_sums[: local_gradient.numel()],
                remaining_sums[local_gradient.numel() :],
            )
            gradient = call.parameter_gradients.get(name)
            if gradient is None:
                self._errors.worst_element.add(
                    math.inf, 1.0, f"{self._name}: {name} has no gradient"
                )
                continue
            input_squares = window_squares if local_gradient.dim() > 1 else output_count
            term_norm = math.sqrt(input_squares * gradient_squares)
            bound = self._rounding.bound(
                expected.norm(), expected.new_tensor(term_norm), output_count, expected.numel()
            )
            # Torch sums over all pixels in another order, with errors that may have one sign.
            bound = bound + STATISTICS_SLACK * self._rounding.sum_epsilon * term_norm
            flat_gradient = gradient.detach().double().reshape(-1).cpu()
            label = f"gradient of {name}"
            error = (flat_gradient - expected).norm()
            self._errors.worst_element.add(
                float(error / (bound + 1e-300)), 1.0, f"{self._name}: {label}"
            )
            value_magnitude = term_norm / math.sqrt(expected.numel())
            part_magnitude = value_magnitude / math.sqrt(max(1.0, output_count))
            scale_error = self._scale_error_by_label.setdefault(label, ScaleError(self._rounding))
            scale_error.add(flat_gradient, expected, value_magnitude, part_magnitude, STRIPS)
