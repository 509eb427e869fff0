"""References of operators that one rank has by itself: torch's own, again in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.full_size.bound import (
    STATISTICS_SLACK,
    OperatorErrors,
    Rounding,
    ScaleError,
    length,
    worst_pixel,
)
from spbench_parallel.full_size.windows import OperatorCall
from spbench_parallel.full_size.winograd import amplify, may_use_winograd
from spbench_parallel.models.shifted_conv import ShiftedConv2d

PlainOperator = nn.Conv2d | nn.Linear | nn.AvgPool2d | nn.AdaptiveAvgPool2d | nn.MaxPool2d | nn.ReLU
"""Operators that are linear, or that choose: of magnitudes they make the sums of magnitudes."""
Compute = Callable[..., torch.Tensor]


class PlainCheck:
    """The check of an operator of one rank, call by call.

    The sum of magnitudes that a value is made of is what the operator makes of the magnitudes of
    its input and its parameters, and that of a gradient what its backward pass makes of them.

    Args:
        name: The operator's name.
        module: The operator.
        work: The format in which convolutions work.
        rounding: The rounding of the format.
        errors: Take in the errors.
        biases: Whether gradients of biases are compared. Torch may add them up pixel by pixel, so
            in a wide format they can be farther off than their bound.
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
        self._compute = _compute_of(module)
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
        parameters = {name: one.detach() for name, one in self._module.named_parameters()}
        multiplied = [one.to(self._multiplied or one.dtype).double() for one in parameters.values()]
        pixels = call.pixels.double()
        gradient = call.output_gradient
        wide = None if gradient is None else gradient.double()
        made = self._passes(pixels, multiplied, wide)
        # A pool chooses by values: of magnitudes it would choose others.
        chosen = pixels if isinstance(self._module, nn.MaxPool2d | nn.ReLU) else pixels.abs()
        sizes = self._passes(
            chosen, [one.abs() for one in multiplied], None if wide is None else wide.abs()
        )
        forward = back = None
        if self._winograd:
            forward, back = self._amplified(pixels, multiplied, wide)
        self._note("output", call.output, made[0], sizes[0].abs(), forward)
        if call.input_gradient is not None:
            self._note("input gradient", call.input_gradient, made[1], sizes[1], back)
        for name, wanted, size in zip(parameters, made[2:], sizes[2:], strict=False):
            if wanted.dim() == 1 and not self._biases:
                continue
            found = call.parameter_gradients.get(name)
            if found is None:
                self._errors.single.add(math.inf, 1.0, f"{self._name}: {name} has no gradient")
            else:
                self._note(f"gradient of {name}", found, wanted, size)

    def _passes(
        self, pixels: torch.Tensor, parameters: list[torch.Tensor], gradient: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """Return output, and gradients of input and parameters."""
        given = [one.detach().requires_grad_(gradient is not None) for one in (pixels, *parameters)]
        with torch.enable_grad():
            made = self._compute(*given)
        if gradient is None:
            return (made.detach(),)
        return (made.detach(), *torch.autograd.grad(made, given, gradient))

    def _amplified(
        self, pixels: torch.Tensor, parameters: list[torch.Tensor], gradient: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the sums of magnitudes of Winograd's algorithm, of the output and going back."""
        module = self._module
        weight = parameters[0]
        assert isinstance(module, nn.Conv2d), "others have no windows"
        squares = pixels.square().sum(1, keepdim=True).requires_grad_(gradient is not None)
        with torch.enable_grad():
            reach = functional.conv2d(squares, weight.new_ones(1, 1, 3, 3), None, 1, module.padding)
        length_of_weights = float(weight.norm())
        forward = amplify(reach.detach()).sqrt()[:, 0] * length_of_weights
        if gradient is None:
            return forward, None
        (spread,) = torch.autograd.grad(reach, squares, gradient.square().sum(1, keepdim=True))
        return forward, amplify(spread).sqrt()[:, 0] * length_of_weights

    def _note(
        self,
        what: str,
        found: torch.Tensor,
        wanted: torch.Tensor,
        size: torch.Tensor,
        summed: torch.Tensor | None = None,
    ) -> None:
        rounding = (
            Rounding.from_dtype(found.dtype) if self._has_format_of_weights else self._rounding
        )
        where = f"{self._name}: {what}"
        if found.shape != wanted.shape:
            self._errors.single.add(math.inf, 1.0, where)
            return
        pool = isinstance(self._module, nn.MaxPool2d | nn.AvgPool2d)
        # Torch adds up the gradients of overlapping windows in the format itself.
        parts = size if pool and what == "input gradient" else None
        maps = wanted.dim() == 4 and "gradient of" not in what
        single = found.detach().double() if maps else found.detach().double().reshape(1, -1, 1, 1)
        exact = wanted.reshape(single.shape)
        sizes = size.reshape(single.shape)
        lengths = length(exact) if parts is None else length(exact) + length(sizes)
        wide = STATISTICS_SLACK * length(sizes)
        if summed is not None:
            wide = torch.maximum(wide, summed)
        bound = rounding.bound(lengths, wide, math.inf, exact.shape[1], length(sizes))
        error, (row, col) = worst_pixel(single, exact, bound)
        at = f" at row {row}, column {col}" if maps else ""
        self._errors.single.add(error, 1.0, where + at)
        scale = ScaleError(rounding)
        if isinstance(self._module, nn.AdaptiveAvgPool2d):
            # All pixels of a channel have one gradient, with one rounding.
            single, exact, sizes = (one.mean((2, 3)) for one in (single, exact, sizes))
        if parts is None:
            scale.add(single, exact, sizes)
        else:
            scale.add(single, exact, sizes, sizes, float(self._taps))
        self._errors.scales.add(scale.error, 1.0, where)


def _compute_of(module: PlainOperator) -> Compute:
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
    own = type(module)(**{name: getattr(module, name) for name in _words_of(module)})
    return own.__call__


def _words_of(pool: nn.AvgPool2d | nn.MaxPool2d) -> tuple[str, ...]:
    both = "kernel_size", "stride", "padding", "ceil_mode"
    return (*both, "dilation" if isinstance(pool, nn.MaxPool2d) else "count_include_pad")
