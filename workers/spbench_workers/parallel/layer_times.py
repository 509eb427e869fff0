"""What each layer of a model takes on this process: time, memory, and what it gives on."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import nn

from spbench_workers.device import synchronize
from spbench_workers.models.build import build_stage
from spbench_workers.models.kit import WholeKit
from spbench_workers.models.layers import Flow, Model

ROUNDS = 5


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


def _round(
    stage: nn.Module, inputs: tuple[torch.Tensor, ...], device: torch.device
) -> tuple[float, float]:
    """Seconds of one forward and one backward."""
    synchronize(device)
    start = perf_counter()
    made = stage(inputs[0] if len(inputs) == 1 else inputs)
    synchronize(device)
    between = perf_counter()
    outputs = (made,) if isinstance(made, torch.Tensor) else tuple(made)
    outputs = tuple(one for one in outputs if one.requires_grad)
    torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs])
    synchronize(device)
    return between - start, perf_counter() - between
