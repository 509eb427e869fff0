"""Convolutions with deferred weight gradients, for schedule zb-h1.

Zero-bubble schedules split a backward pass: gradients of data (B) come first, and gradients of
weights (W) in a later task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from spbench_core.layout.window import expand_pair


class DeferredWeightGrad(TorchFunctionMode):
    """A mode in which convolutions of a stage defer the gradients of their weights.

    All other gradients of weights are computed with those of data, since they cost next to nothing.
    So are those of convolutions with a padding given by name that differs between two sides.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pending_by_micro_batch: dict[int, list[_PendingGrad]] = {}
        self._micro_batch = 0
        # Weights are not inputs of the autograd function, because their hooks would then be called
        # with None. This input makes its output require a gradient.
        self._tracked = torch.zeros((), requires_grad=True)

    @contextmanager
    def record(self, micro_batch: int) -> Iterator[None]:
        """Run a micro-batch's forward pass inside."""
        self._micro_batch = micro_batch
        self._pending_by_micro_batch[micro_batch] = []
        with self:
            yield

    def compute(self, micro_batch: int) -> None:
        """Add a micro-batch's gradients to those of the weights, after its backward pass."""
        pending = self._pending_by_micro_batch.pop(micro_batch)
        # Each is released right after its use: the autograd graph refers to this list and may live
        # longer.
        while pending:
            pending.pop(0).add_gradients()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Defer the weight gradients of convolutions; run all other functions unchanged."""
        kwargs = kwargs or {}
        if function is torch.conv2d:
            return self._conv2d(*args, **kwargs)
        return function(*args, **kwargs)

    def _conv2d(
        self,
        pixels: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        arguments = _ConvArguments(*args, **kwargs)
        padding = _find_symmetric_padding(arguments, weight)
        if padding is None:
            return torch.conv2d(pixels, weight, bias, *arguments)
        operands = _Operands(weight, bias, arguments._replace(padding=padding))
        defer = self._pending_by_micro_batch[self._micro_batch].append
        output: torch.Tensor = _Convolution.apply(pixels, self._tracked, operands, defer)
        return output


class _ConvArguments(NamedTuple):
    """Further arguments of `torch.conv2d`."""

    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1


class _Operands(NamedTuple):
    """The weights and the form of a convolution."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    arguments: _ConvArguments


class _PendingGrad(NamedTuple):
    """The operands of a convolution's gradients of weight and bias."""

    gradient: torch.Tensor
    pixels: torch.Tensor
    operands: _Operands

    def add_gradients(self) -> None:
        """Add the gradients to those of weight and bias."""
        weight, bias, _ = self.operands
        has_bias_grad = bias is not None and bias.requires_grad
        _, weight_grad, bias_grad = _compute_gradients(*self, (False, True, has_bias_grad))
        torch.autograd.backward(weight, weight_grad)
        if bias is not None and has_bias_grad:
            torch.autograd.backward(bias, bias_grad)


class _Convolution(Function):
    """A convolution that defers the gradients of its weights in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        pixels: torch.Tensor,
        tracked: torch.Tensor,
        operands: _Operands,
        defer: Callable[[_PendingGrad], None],
    ) -> torch.Tensor:
        del tracked
        ctx.save_for_backward(pixels)
        ctx.operands = operands
        ctx.defer = defer
        weight, bias, arguments = operands
        return torch.conv2d(pixels, weight, bias, *arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (pixels,) = ctx.saved_tensors
        pending = _PendingGrad(gradient, pixels.detach(), ctx.operands)
        pixels_grad, _, _ = _compute_gradients(*pending, (ctx.needs_input_grad[0], False, False))
        ctx.defer(pending)
        return pixels_grad, None, None, None


def _compute_gradients(
    gradient: torch.Tensor,
    pixels: torch.Tensor,
    operands: _Operands,
    needed_gradients: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """Return the needed gradients of pixels, weight and bias."""
    weight, bias, arguments = operands
    gradients: tuple[Any, Any, Any] = torch.ops.aten.convolution_backward(
        gradient,
        pixels,
        weight,
        None if bias is None else [bias.numel()],
        list(expand_pair(arguments.stride)),
        list(expand_pair(arguments.padding)),
        list(expand_pair(arguments.dilation)),
        False,  # transposed
        [0, 0],
        arguments.groups,
        needed_gradients,
    )
    return gradients


def _find_symmetric_padding(arguments: _ConvArguments, weight: torch.Tensor) -> Any:
    """Return the padding in numbers; None if the two sides of an axis differ.

    ``same`` adds ``dilation * (kernel - 1)`` in total, and an odd one at the end.
    """
    if arguments.padding == "valid":
        return 0
    if arguments.padding != "same":
        return arguments.padding
    axes = zip(list(expand_pair(arguments.dilation)), weight.shape[2:], strict=True)
    total_paddings = [dilation * (kernel - 1) for dilation, kernel in axes]
    if any(total % 2 for total in total_paddings):
        return None
    return [total // 2 for total in total_paddings]
