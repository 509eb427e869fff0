"""Recomputation: activations that are computed again instead of kept.

Only the inputs of a part of the model are kept (Chen et al., Training Deep Nets with Sublinear
Memory Cost, 2016). All ranks of its tiles recompute it together.
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

ActivateFormat = Callable[[], AbstractContextManager[None]]
"""Activates the number format of the computations."""


def enable_recomputation(stage: nn.Module, scope: str | None, activate: ActivateFormat) -> None:
    """Let a stage keep only its inputs, or only those of each of its layers.

    Args:
        stage: The stage; its parameters and their names stay the same.
        scope: ``stage``, ``block`` for each layer separately, or None to keep everything.
        activate: Activates the number format of the computations.
    """
    if scope is not None:
        for part in [stage] if scope == "stage" else stage.children():
            part.forward = partial(_forward_part, part, part.forward, activate)


def _forward_part(
    part: nn.Module,
    compute: Callable[[TensorOrTuple], TensorOrTuple],
    activate: ActivateFormat,
    data: TensorOrTuple,
) -> TensorOrTuple:
    if not (part.training and torch.is_grad_enabled()):
        return compute(data)
    inputs = (data,) if isinstance(data, torch.Tensor) else tuple(data)
    # Parameters are inputs as well: the first stage's own inputs need no gradient.
    parameters = [parameter for parameter in part.parameters() if parameter.requires_grad]
    outputs: TensorOrTuple = _Recomputation.apply(
        part, compute, activate, len(inputs), *inputs, *parameters
    )
    return outputs


class _Recomputation(Function):
    """A part of a model that is computed again for its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        part: nn.Module,
        compute: Callable[[TensorOrTuple], TensorOrTuple],
        activate: ActivateFormat,
        input_count: int,
        *tensors: torch.Tensor,
    ) -> TensorOrTuple:
        ctx.part = part
        ctx.compute = compute
        ctx.activate = activate
        ctx.input_count = input_count
        ctx.parameters = tensors[input_count:]
        ctx.save_for_backward(*tensors[:input_count])
        ctx.set_materialize_grads(False)
        return compute(_unpack_single(tensors[:input_count]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        needs_gradient = ctx.needs_input_grad[4 : 4 + ctx.input_count]
        inputs = tuple(
            tensor.detach().requires_grad_(needs)
            for tensor, needs in zip(ctx.saved_tensors, needs_gradient, strict=True)
        )
        with torch.enable_grad(), preserve_statistics(ctx.part), ctx.activate():
            output = ctx.compute(_unpack_single(inputs))
        outputs = (output,) if isinstance(output, torch.Tensor) else tuple(output)
        outputs_with_gradients = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad  # a detached output does not
        ]
        differentiated = [*(tensor for tensor in inputs if tensor.requires_grad), *ctx.parameters]
        gradients_in_order = iter(
            torch.autograd.grad(
                [output for output, _ in outputs_with_gradients],
                differentiated,
                [gradient for _, gradient in outputs_with_gradients],
                allow_unused=True,
            )
        )
        input_gradients = [next(gradients_in_order) if needs else None for needs in needs_gradient]
        parameter_gradients = gradients_in_order
        return None, None, None, None, *input_gradients, *parameter_gradients


@contextmanager
def preserve_statistics(part: nn.Module) -> Iterator[None]:
    """Restore running statistics at the end.

    A batch counts once, however often it is computed.
    """
    saved_buffers = [(buffer, buffer.clone()) for buffer in part.buffers()]
    yield
    for buffer, value in saved_buffers:
        # Through `data`, so that autograd does not count a change: batch norm's gradients do not
        # depend on it.
        buffer.data.copy_(value)


def _unpack_single(tensors: TensorTuple) -> TensorOrTuple:
    return tensors[0] if len(tensors) == 1 else tensors
