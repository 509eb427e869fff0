"""What each layer of a model takes on this process: time, memory, and what it gives on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from spbench_workers.device.streams import synchronize
from spbench_workers.models.build import build_stage
from spbench_workers.models.kit import WholeKit
from spbench_workers.models.layers import Flow, Model

ROUNDS = 5
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A layer, measured.

    Attributes:
        name: Its name.
        forward_ms: Median over rounds.
        backward_ms: Likewise; 0 where nothing is learnt of it or before it.
    """

    name: str
    forward_ms: float
    backward_ms: float


def layer_times(
    model: Model, images: int, device: torch.device, dtype: torch.dtype, seed: int
) -> list[LayerTime]:
    """Measure each layer by itself, one after the other: one is in memory at a time.

    Args:
        model: The model.
        images: In a micro-batch.
        device: Where it is computed.
        dtype: In which number format.
        seed: Of weights and images.
    """
    random = torch.Generator().manual_seed(seed)
    found = []
    for index, layer in enumerate(model.layers):
        stage = build_stage(
            model, index, index + 1, WholeKit(), seed=seed, device=device, dtype=dtype
        )
        inputs = _inputs(model.flows[index], images, random, device, dtype)
        rounds = [_round(stage, inputs, device) for _ in range(ROUNDS + 1)][1:]
        forward, backward = (median(times) * 1000.0 for times in zip(*rounds, strict=True))
        found.append(LayerTime(layer.name, forward, backward))
    return found


def _inputs(
    flow: Flow, images: int, random: torch.Generator, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.randn((images, data.channels, data.height, data.width), generator=random)
        .to(device, dtype)
        .requires_grad_()
        for data in flow
    )


def _round(stage: nn.Module, inputs: Tensors, device: torch.device) -> tuple[float, float]:
    """Seconds of one forward and one backward."""
    seconds, outputs = forward(stage, inputs, device)
    return seconds, backward(outputs, list(map(torch.ones_like, outputs)), device)


def forward(
    layer: Callable[[Any], Any], inputs: Tensors, device: torch.device
) -> tuple[float, Tensors]:
    """Return the seconds of a layer's forward pass, and what it gives on."""
    synchronize(device)
    start = perf_counter()
    made = layer(inputs[0] if len(inputs) == 1 else inputs)
    synchronize(device)
    return perf_counter() - start, as_tuple(made)


def as_tuple(made: torch.Tensor | Sequence[torch.Tensor]) -> Tensors:
    """Return what a layer gives, one tensor or several, as a tuple."""
    return (made,) if isinstance(made, torch.Tensor) else tuple(made)


def backward(outputs: Tensors, gradients: Sequence[torch.Tensor], device: torch.device) -> float:
    """Return the seconds of a layer's backward pass, from the gradients of what it gave on."""
    pairs = zip(outputs, gradients, strict=True)
    learnt = [(output, gradient) for output, gradient in pairs if output.requires_grad]
    if not learnt:
        return 0.0
    synchronize(device)
    start = perf_counter()
    torch.autograd.backward([output for output, _ in learnt], [grad for _, grad in learnt])
    synchronize(device)
    return perf_counter() - start
