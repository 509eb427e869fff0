"""References of operators on one rank: torch's operators in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    Rounding,
    ScaleError,
    length,
    worst_pixel,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors
from spbench_parallel.full_size.winograd import amplify, may_use_winograd
from spbench_parallel.models.modules import ShiftedConv2d

PlainOperator = nn.Conv2d | nn.Linear | nn.AvgPool2d | nn.AdaptiveAvgPool2d | nn.MaxPool2d | nn.ReLU
"""Operators that are linear, or that select values.

For linear ones, the operator of magnitudes is the sum of magnitudes.
"""
Compute = Callable[..., torch.Tensor]


class PlainCheck:
    """The check of an operator of one rank, call by call.

    The sum of magnitudes of a value's terms is the operator of the magnitudes of its input and its
    parameters. For gradients it is the backward pass of these magnitudes.

    Args:
        name: The operator's name.
        module: The operator.
        work: The format in which convolutions work.
        rounding: The rounding of the format.
        errors: Collects the errors.
        biases: Whether gradients of biases are compared. Torch may add them up pixel by pixel, so
            that in a wide format they can exceed their bound.
    """

    def __init__(
        self,
        name: str,
        module: PlainOperator,
        work: torch.dtype,
        rounding: Rounding,
        errors: OperatorErrors,
        *,
        biases: bool = True,
    ) -> None:
        self._name = name
        self._module = module
        self._errors = errors
        self._multiplied = work if isinstance(module, nn.Conv2d) else None
        self._compute = _create_compute(module)
        kernel = getattr(module, "kernel_size", 1)
        self._taps = math.prod(kernel) if isinstance(kernel, tuple) else kernel**2
        # In mixed precision fully connected layers multiply in the format of the weights.
        self._has_format_of_weights = isinstance(module, nn.Linear) and work.itemsize == 2
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
        multiplied = [
            parameter.to(self._multiplied or parameter.dtype).double()
            for parameter in parameters.values()
        ]
        pixels = call.pixels.double()
        gradient = call.output_gradient
        wide = None if gradient is None else gradient.double()
        expected = self._passes(pixels, multiplied, wide)
        # These select by value, and would select other magnitudes.
        selects = isinstance(self._module, nn.MaxPool2d | nn.ReLU)
        sizes = self._passes(
            pixels if selects else pixels.abs(),
            [parameter.abs() for parameter in multiplied],
            None if wide is None else wide.abs(),
        )

        forward = back = None
        if self._winograd:
            forward, back = self._amplify_sizes(pixels, multiplied, wide)
        self._compare("output", call.output, expected[0], sizes[0].abs(), forward)
        if call.input_gradient is not None:
            self._compare("input gradient", call.input_gradient, expected[1], sizes[1], back)
        for name, reference, size in zip(parameters, expected[2:], sizes[2:], strict=False):
            if reference.dim() == 1 and not self._biases:
                continue
            parameter_gradient = call.parameter_gradients.get(name)
            if parameter_gradient is None:
                self._errors.worst_element.add(
                    math.inf, 1.0, f"{self._name}: {name} has no gradient"
                )
            else:
                self._compare(f"gradient of {name}", parameter_gradient, reference, size)

    def _passes(
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

    def _amplify_sizes(
        self, pixels: torch.Tensor, parameters: list[torch.Tensor], gradient: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the magnitudes of Winograd's algorithm for output and input gradient."""
        module = self._module
        weight = parameters[0]
        assert isinstance(module, nn.Conv2d), "others have no windows"
        squares = pixels.square().sum(1, keepdim=True).requires_grad_(gradient is not None)
        with torch.enable_grad():
            reach = functional.conv2d(squares, weight.new_ones(1, 1, 3, 3), None, 1, module.padding)
        weight_norm = float(weight.norm())
        forward = amplify(reach.detach()).sqrt()[:, 0] * weight_norm
        if gradient is None:
            return forward, None
        (spread,) = torch.autograd.grad(reach, squares, gradient.square().sum(1, keepdim=True))
        return forward, amplify(spread).sqrt()[:, 0] * weight_norm

    def _compare(
        self,
        label: str,
        values: torch.Tensor,
        expected: torch.Tensor,
        size: torch.Tensor,
        summed: torch.Tensor | None = None,
    ) -> None:
        rounding = (
            Rounding.from_dtype(values.dtype) if self._has_format_of_weights else self._rounding
        )
        name = f"{self._name}: {label}"
        if values.shape != expected.shape:
            self._errors.worst_element.add(math.inf, 1.0, name)
            return

        # Gradients of parameters have one pixel, with all values as its channels.
        pool = isinstance(self._module, nn.MaxPool2d | nn.AvgPool2d)
        # Torch sums the gradients of overlapping windows in the number format of the maps.
        parts = size if pool and label == "input gradient" else None
        maps = expected.dim() == 4 and "gradient of" not in label
        values_4d = (
            values.detach().double() if maps else values.detach().double().reshape(1, -1, 1, 1)
        )
        expected_4d = expected.reshape(values_4d.shape)
        sizes = size.reshape(values_4d.shape)

        lengths = length(expected_4d) if parts is None else length(expected_4d) + length(sizes)
        wide = STATISTICS_SLACK * length(sizes)
        if summed is not None:
            wide = torch.maximum(wide, summed)
        bound = rounding.bound(lengths, wide, math.inf, expected_4d.shape[1], length(sizes))
        error, (row, col) = worst_pixel(values_4d, expected_4d, bound)
        position = f" at row {row}, column {col}" if maps else ""
        self._errors.worst_element.add(error, 1.0, name + position)

        scale = ScaleError(rounding)
        if isinstance(self._module, nn.AdaptiveAvgPool2d):
            # All pixels of a channel have the same gradient, with the same rounding.
            values_4d, expected_4d, sizes = (
                tensor.mean((2, 3)) for tensor in (values_4d, expected_4d, sizes)
            )
        if parts is None:
            scale.add(values_4d, expected_4d, sizes)
        else:
            scale.add(values_4d, expected_4d, sizes, sizes, float(self._taps))
        self._errors.worst_scale.add(scale.error, 1.0, name)


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
    copy = type(module)(**{name: getattr(module, name) for name in _pool_arguments(module)})
    return copy.__call__


def _pool_arguments(pool: nn.AvgPool2d | nn.MaxPool2d) -> tuple[str, ...]:
    common = "kernel_size", "stride", "padding", "ceil_mode"
    return (*common, "dilation" if isinstance(pool, nn.MaxPool2d) else "count_include_pad")
