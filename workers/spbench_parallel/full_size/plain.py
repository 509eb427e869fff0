"""References of operators on one rank: torch's operators in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    Rounding,
    ScaleError,
    compute_pixel_norms,
    find_worst_pixel,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors
from spbench_parallel.full_size.winograd import amplify, may_use_winograd
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.plain_modules import find_used_once, is_plain_torch
from spbench_parallel.models.modules import ShiftedConv2d
from spbench_parallel.plan import ModelPlan

PlainOperator = nn.Conv2d | nn.Linear | nn.AvgPool2d | nn.AdaptiveAvgPool2d | nn.MaxPool2d | nn.ReLU
"""Operators that are linear, or that select values.

For linear ones, the operator of magnitudes is the sum of magnitudes.
"""
_ALL_PLAIN = (PlainOperator, nn.BatchNorm2d)
MULTIPLYING = (nn.Conv2d, nn.Linear)
"""Operators that sum products."""
Compute = Callable[..., torch.Tensor]


class PlainCheck:
    """The check of an operator of one rank, call by call.

    The sum of magnitudes of a value's terms is the operator of the magnitudes of its input and its
    parameters. For gradients it is the backward pass of these magnitudes.

    Args:
        name: The operator's name.
        module: The operator.
        work_dtype: The format in which convolutions work.
        rounding: The rounding of the format.
        errors: Collects the errors.
        biases: Whether gradients of biases are compared. Torch may add them up pixel by pixel, so
            that in a wide format they can exceed their bound.
    """

    def __init__(
        self,
        name: str,
        module: PlainOperator,
        work_dtype: torch.dtype,
        rounding: Rounding,
        errors: OperatorErrors,
        *,
        biases: bool = True,
    ) -> None:
        self._name = name
        self._module = module
        self._errors = errors
        self._product_dtype = work_dtype if isinstance(module, nn.Conv2d) else None
        self._compute = _create_compute(module)
        kernel = getattr(module, "kernel_size", 1)
        self._window_pixels = math.prod(kernel) if isinstance(kernel, tuple) else kernel**2
        # In mixed precision fully connected layers multiply in the format of the weights.
        self._has_format_of_weights = isinstance(module, nn.Linear) and work_dtype.itemsize == 2
        self._rounding = rounding
        self._biases = biases
        self._winograd = (
            isinstance(module, nn.Conv2d)
            and (module.kernel_size, module.stride, module.dilation) == ((3, 3), (1, 1), (1, 1))
            and may_use_winograd(module.weight.device, rounding)
        )

    def check(self, call: OperatorCall) -> None:
        """Compute a call again, and compare."""
        parameters = {
            name: parameter.detach() for name, parameter in self._module.named_parameters()
        }
        wide_parameters = [
            parameter.to(self._product_dtype or parameter.dtype).double()
            for parameter in parameters.values()
        ]
        pixels = call.pixels.double()
        output_gradient = call.output_gradient
        wide_gradient = None if output_gradient is None else output_gradient.double()
        references = self._run_passes(pixels, wide_parameters, wide_gradient)
        # These select by value, and would select other magnitudes.
        selects = isinstance(self._module, nn.MaxPool2d | nn.ReLU)
        magnitudes = self._run_passes(
            pixels if selects else pixels.abs(),
            [parameter.abs() for parameter in wide_parameters],
            None if wide_gradient is None else wide_gradient.abs(),
        )

        winograd_output = winograd_gradient = None
        if self._winograd:
            winograd_output, winograd_gradient = self._amplify_magnitudes(
                pixels, wide_parameters, wide_gradient
            )
        self._compare("output", call.output, references[0], magnitudes[0].abs(), winograd_output)
        if call.input_gradient is not None:
            self._compare(
                "input gradient",
                call.input_gradient,
                references[1],
                magnitudes[1],
                winograd_gradient,
            )
        for name, reference, magnitude in zip(
            parameters, references[2:], magnitudes[2:], strict=False
        ):
            if reference.dim() == 1 and not self._biases:
                continue
            parameter_gradient = call.parameter_gradients.get(name)
            if parameter_gradient is None:
                self._errors.worst_element.add(
                    math.inf, 1.0, f"{self._name}: {name} has no gradient"
                )
            else:
                self._compare(f"gradient of {name}", parameter_gradient, reference, magnitude)

    def _run_passes(
        self, pixels: torch.Tensor, parameters: list[torch.Tensor], gradient: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """Return the output, and the gradients of input and parameters."""
        learns = gradient is not None
        inputs = [tensor.detach().requires_grad_(learns) for tensor in (pixels, *parameters)]
        with torch.enable_grad():
            output = self._compute(*inputs)
        if gradient is None:
            return (output.detach(),)
        return (output.detach(), *torch.autograd.grad(output, inputs, gradient))

    def _amplify_magnitudes(
        self, pixels: torch.Tensor, parameters: list[torch.Tensor], gradient: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the magnitudes of Winograd's algorithm for output and input gradient."""
        module = self._module
        weight = parameters[0]
        assert isinstance(module, nn.Conv2d), "others have no windows"
        pixel_squares = pixels.square().sum(1, keepdim=True).requires_grad_(gradient is not None)
        with torch.enable_grad():
            window_squares = functional.conv2d(
                pixel_squares, weight.new_ones(1, 1, 3, 3), None, 1, module.padding
            )
        weight_norm = float(weight.norm())
        output_magnitude = amplify(window_squares.detach()).sqrt()[:, 0] * weight_norm
        if gradient is None:
            return output_magnitude, None
        (gradient_squares,) = torch.autograd.grad(
            window_squares, pixel_squares, gradient.square().sum(1, keepdim=True)
        )
        return output_magnitude, amplify(gradient_squares).sqrt()[:, 0] * weight_norm

    def _compare(
        self,
        label: str,
        values: torch.Tensor,
        expected: torch.Tensor,
        magnitude: torch.Tensor,
        winograd_magnitude: torch.Tensor | None = None,
    ) -> None:
        rounding = (
            Rounding.from_dtype(values.dtype) if self._has_format_of_weights else self._rounding
        )
        name = f"{self._name}: {label}"
        if values.shape != expected.shape:
            self._errors.worst_element.add(math.inf, 1.0, name)
            return

        # Gradients of parameters have one pixel, with all values as its channels.
        is_pool = isinstance(self._module, nn.MaxPool2d | nn.AvgPool2d)
        # Torch sums the gradients of overlapping windows in the number format of the maps.
        rounded_parts = magnitude if is_pool and label == "input gradient" else None
        is_map = expected.dim() == 4 and "gradient of" not in label
        values_4d = (
            values.detach().double() if is_map else values.detach().double().reshape(1, -1, 1, 1)
        )
        expected_4d = expected.reshape(values_4d.shape)
        magnitude_4d = magnitude.reshape(values_4d.shape)

        norms = (
            compute_pixel_norms(expected_4d)
            if rounded_parts is None
            else compute_pixel_norms(expected_4d) + compute_pixel_norms(magnitude_4d)
        )
        sum_magnitude = STATISTICS_SLACK * compute_pixel_norms(magnitude_4d)
        if winograd_magnitude is not None:
            sum_magnitude = torch.maximum(sum_magnitude, winograd_magnitude)
        bound = rounding.bound(
            norms, sum_magnitude, math.inf, expected_4d.shape[1], compute_pixel_norms(magnitude_4d)
        )
        error, (row, col) = find_worst_pixel(values_4d, expected_4d, bound)
        position = f" at row {row}, column {col}" if is_map else ""
        self._errors.worst_element.add(error, 1.0, name + position)

        scale_error = ScaleError(rounding)
        if isinstance(self._module, nn.AdaptiveAvgPool2d):
            # All pixels of a channel have the same gradient, with the same rounding.
            values_4d, expected_4d, magnitude_4d = (
                tensor.mean((2, 3)) for tensor in (values_4d, expected_4d, magnitude_4d)
            )
        if rounded_parts is None:
            scale_error.add(values_4d, expected_4d, magnitude_4d)
        else:
            scale_error.add(
                values_4d, expected_4d, magnitude_4d, magnitude_4d, float(self._window_pixels)
            )
        self._errors.worst_scale.add(scale_error.error, 1.0, name)


def _create_compute(module: PlainOperator) -> Compute:
    """Return an operator as a function of its input, weight and bias."""
    match module:
        case ShiftedConv2d():
            return lambda pixels, weight: functional.conv2d(pixels[:, :, 1::2, 1::2], weight)
        case nn.Conv2d():
            return lambda pixels, weight, bias=None: functional.conv2d(
                pixels,
                weight,
                bias,
                module.stride,
                module.padding,
                module.dilation,
                module.groups,
            )
        case nn.Linear():
            return functional.linear
        case nn.AdaptiveAvgPool2d():
            return lambda pixels: pixels.mean((2, 3), keepdim=True)
        case nn.ReLU():
            return functional.relu
    unhooked_pool = type(module)(
        **{name: getattr(module, name) for name in _pool_arguments(module)}
    )
    return unhooked_pool.__call__


def _pool_arguments(pool: nn.AvgPool2d | nn.MaxPool2d) -> tuple[str, ...]:
    common = "kernel_size", "stride", "padding", "ceil_mode"
    return (*common, "dilation" if isinstance(pool, nn.MaxPool2d) else "count_include_pad")


def list_plain_operators(
    plan: ModelPlan, stage: nn.Module, *, checks_all: bool
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the operators of a stage that one rank computes, with their names.

    Args:
        plan: The model.
        stage: The rank's part of it.
        checks_all: Whether all of them are checked, or only those that multiply.
    """
    operator_types = _ALL_PLAIN if checks_all else MULTIPLYING
    operators = [pair for pair in stage.named_modules() if isinstance(pair[1], operator_types)]
    if not isinstance(plan.model, ImportedModel):
        yield from operators
        return
    used_once = find_used_once(stage)
    yield from (
        (name, module)
        for name, module in operators
        if module in used_once and is_plain_torch(module)
    )
