"""Convolutions whose gradients of weights are computed after those of data, in schedule zb-h1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from spbench_core.layout.window import both_axes


class LaterWeights(TorchFunctionMode):
    """Convolutions of a stage that keep what the gradients of their weights are computed from.

    Those of all other weights are computed with the gradients of data: they cost next to nothing.
    So are those of convolutions whose padding has a name and is more on one side than on the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, list[_Kept]] = {}
        self._micro_batch = 0
        # Weights are no inputs of what autograd sees, or their hooks would be called with nothing.
        self._tracked = torch.zeros((), requires_grad=True)

    @contextmanager
    def of(self, micro_batch: int) -> Iterator[None]:
        """Compute a micro-batch's forward pass inside."""
        self._micro_batch = micro_batch
        self._kept[micro_batch] = []
        with self:
            yield

    def compute(self, micro_batch: int) -> None:
        """Add a micro-batch's gradients to those of the weights, after its backward pass."""
        kept = self._kept.pop(micro_batch)
        while kept:  # each is let go, as the graph that leads here is not collected by itself
            kept.pop(0).add_gradients()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute convolutions so that gradients come later, and all else as it is."""
        given = kwargs or {}
        if function is torch.conv2d:
            return self._conv2d(*args, **given)
        return function(*args, **given)

    def _conv2d(
        self,
        pixels: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *form: Any,
        **named: Any,
    ) -> torch.Tensor:
        asked = _Form(*form, **named)
        padding = _padding(asked, weight)
        if padding is None:
            return torch.conv2d(pixels, weight, bias, *asked)
        convolution = _Convolved(weight, bias, asked._replace(padding=padding))
        keep = self._kept[self._micro_batch].append
        made: torch.Tensor = _Convolution.apply(pixels, self._tracked, convolution, keep)
        return made


class _Form(NamedTuple):
    """Further arguments of `torch.conv2d`."""

    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1


class _Convolved(NamedTuple):
    """The weights of a convolution."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    form: _Form


class _Kept(NamedTuple):
    """The operands of a convolution's gradients of weight and bias."""

    gradient: torch.Tensor
    pixels: torch.Tensor
    convolution: _Convolved

    def add_gradients(self) -> None:
        """Add them to those of weight and bias."""
        weight, bias, _ = self.convolution
        learnt = bias is not None and bias.requires_grad
        _, of_weight, of_bias = _gradients(*self, (False, True, learnt))
        torch.autograd.backward(weight, of_weight)
        if bias is not None and learnt:
            torch.autograd.backward(bias, of_bias)


class _Convolution(Function):
    """A convolution whose backward pass gives the gradient of its pixels, and keeps the rest."""

    @staticmethod
    def forward(
        ctx: Any,
        pixels: torch.Tensor,
        tracked: torch.Tensor,
        convolution: _Convolved,
        keep: Callable[[_Kept], None],
    ) -> torch.Tensor:
        del tracked
        ctx.save_for_backward(pixels)
        ctx.convolution = convolution
        ctx.keep = keep
        weight, bias, form = convolution
        return torch.conv2d(pixels, weight, bias, *form)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (pixels,) = ctx.saved_tensors
        kept = _Kept(gradient, pixels.detach(), ctx.convolution)
        of_pixels, _, _ = _gradients(*kept, (ctx.needs_input_grad[0], False, False))
        ctx.keep(kept)
        return of_pixels, None, None, None


def _gradients(
    gradient: torch.Tensor,
    pixels: torch.Tensor,
    convolution: _Convolved,
    wanted: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """Return the gradients of pixels, weight and bias, those that are wanted."""
    weight, bias, form = convolution
    found: tuple[Any, Any, Any] = torch.ops.aten.convolution_backward(
        gradient,
        pixels,
        weight,
        None if bias is None else [bias.numel()],
        list(both_axes(form.stride)),
        list(both_axes(form.padding)),
        list(both_axes(form.dilation)),
        False,  # no transposed convolution
        [0, 0],
        form.groups,
        wanted,
    )
    return found


def _padding(form: _Form, weight: torch.Tensor) -> Any:
    """Return the padding of each side in numbers; None where the sides of a row or column differ.

    ``same`` adds ``dilation * (kernel - 1)`` in all, and the odd one at the end.
    """
    if form.padding == "valid":
        return 0
    if form.padding != "same":
        return form.padding
    sizes = zip(list(both_axes(form.dilation)), weight.shape[2:], strict=True)
    both = [dilation * (kernel - 1) for dilation, kernel in sizes]
    return None if any(count % 2 for count in both) else [count // 2 for count in both]
