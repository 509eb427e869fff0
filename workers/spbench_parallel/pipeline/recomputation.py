"""Recomputation: activations that the backward pass computes again, in place of being kept.

Only the inputs of a part of the model are kept (Chen et al., Training Deep Nets with Sublinear
Memory Cost, 2016). All ranks of its tiles compute it again together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_parallel.tensors import TensorOrTuple, TensorTuple

Entered = Callable[[], AbstractContextManager[None]]
"""Enters the number format of the computations."""


def recompute(stage: nn.Module, kind: str | None, entered: Entered) -> None:
    """Let a stage keep its own inputs alone, or those of each of its layers.

    Args:
        stage: The stage; its parameters and their names stay.
        kind: ``stage``, ``block`` for each layer by itself, or None: all is kept.
        entered: Enters the number format of the computations.
    """
    if kind is not None:
        for part in [stage] if kind == "stage" else stage.children():
            part.forward = partial(_forward, part, part.forward, entered)


def _forward(
    part: nn.Module,
    compute: Callable[[TensorOrTuple], TensorOrTuple],
    entered: Entered,
    data: TensorOrTuple,
) -> TensorOrTuple:
    if not (part.training and torch.is_grad_enabled()):
        return compute(data)
    inputs = (data,) if isinstance(data, torch.Tensor) else tuple(data)
    # Parameters are inputs as well: the first stage's own inputs need no gradient.
    parameters = [parameter for parameter in part.parameters() if parameter.requires_grad]
    outputs: TensorOrTuple = _Recomputed.apply(
        part, compute, entered, len(inputs), *inputs, *parameters
    )
    return outputs


class _Recomputed(Function):
    """A part of a model that is computed again for its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        part: nn.Module,
        compute: Callable[[TensorOrTuple], TensorOrTuple],
        entered: Entered,
        count: int,
        *tensors: torch.Tensor,
    ) -> TensorOrTuple:
        ctx.part = part
        ctx.compute = compute
        ctx.entered = entered
        ctx.count = count
        ctx.parameters = tensors[count:]
        ctx.save_for_backward(*tensors[:count])
        ctx.set_materialize_grads(False)
        return compute(_data(tensors[:count]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        needed = ctx.needs_input_grad[4 : 4 + ctx.count]
        inputs = tuple(
            tensor.detach().requires_grad_(need)
            for tensor, need in zip(ctx.saved_tensors, needed, strict=True)
        )
        with torch.enable_grad(), unchanged_statistics(ctx.part), ctx.entered():
            made = ctx.compute(_data(inputs))
        outputs = (made,) if isinstance(made, torch.Tensor) else tuple(made)
        pairs = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad  # not if it is detached
        ]
        wanted = [*(one for one in inputs if one.requires_grad), *ctx.parameters]
        found = iter(
            torch.autograd.grad(
                [output for output, _ in pairs],
                wanted,
                [gradient for _, gradient in pairs],
                allow_unused=True,
            )
        )
        of_inputs = [next(found) if need else None for need in needed]
        return None, None, None, None, *of_inputs, *found


@contextmanager
def unchanged_statistics(part: nn.Module) -> Iterator[None]:
    """Leave running statistics as they are: a batch counts once, however often it is computed."""
    kept = [(buffer, buffer.clone()) for buffer in part.buffers()]
    yield
    for buffer, value in kept:
        buffer.data.copy_(value)  # autograd counts changes, and batch norm's gradients need none


def _data(tensors: TensorTuple) -> TensorOrTuple:
    return tensors[0] if len(tensors) == 1 else tensors
