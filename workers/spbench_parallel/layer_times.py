"""Times of a model's layers, measured one by one on this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, TypeVar

import torch
from torch import nn

from spbench_core.models.layers import Flow, Model
from spbench_parallel.device.failures import note_activity
from spbench_parallel.device.streams import DeviceEvent, get_streams, is_gpu, synchronize_stream
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.precision.formats import MixedProducts, Precision
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.tensors import TensorTuple

ROUNDS = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The measured time of a layer.

    Attributes:
        name: Its name.
        forward_ms: Median over rounds.
        backward_ms: Median over rounds; 0 where neither it nor a layer before it has parameters.
    """

    name: str
    forward_ms: float
    backward_ms: float


def layer_times(
    model: Model,
    images: int,
    device: torch.device,
    precision: Precision,
    seed: int,
    progress: Progress = NO_PROGRESS,
) -> list[LayerTime]:
    """Measure the times of each layer by itself, of those that are alike once.

    One layer at a time is in memory.

    On a GPU layers are computed as they will be. On the host those of 16-bit formats are computed
    in fp32, as most CPUs multiply these numbers anyway.

    Args:
        model: The model.
        images: Number of images in a micro-batch.
        device: The device that computes.
        precision: The number format.
        seed: The seed of weights and images.
        progress: The progress over the layers.
    """
    random = torch.Generator().manual_seed(seed)
    mixed = precision.mixed and is_gpu(device)
    dtype = precision.weights
    products = MixedProducts(precision.work, device) if mixed else None
    found: dict[object, LayerTime] = {}
    progress.begin(len(model.layers))
    for index, layer in enumerate(model.layers):
        if model.alike(index) in found:
            progress.advance()
            continue
        with note_activity(f"layer {layer.name} was measured"), products or nullcontext():
            stage = build_stage(
                model, index, index + 1, DenseBuilder(), seed=seed, device=device, dtype=dtype
            )
            # A layer's input is of the number format that the layer before gives.
            given = precision.work if mixed else dtype
            inputs = _inputs(model.flows[index], images, random, device, given)
            rounds = _rounds(stage, inputs, device)
        forward, backward = (median(times) * 1000.0 for times in zip(*rounds, strict=True))
        found[model.alike(index)] = LayerTime(layer.name, forward, backward)
        progress.advance()
    return [
        replace(found[model.alike(index)], name=layer.name)
        for index, layer in enumerate(model.layers)
    ]


def _inputs(
    flow: Flow, images: int, random: torch.Generator, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.randn((images, data.channels, data.height, data.width), generator=random)
        .to(device, dtype)
        .requires_grad_()
        for data in flow
    )


class Laps:
    """Timings of one piece of work after another, in seconds, read when all is done.

    On a GPU each piece begins where the last one has ended on the current stream, so that they add
    up to all of it, and nobody waits in between: a wait would count as work of the pieces. On the
    host each is timed by itself.

    Args:
        device: The device that does the work.
    """

    def __init__(self, device: torch.device) -> None:
        synchronize_stream(device)
        self._device = device
        self._streams = get_streams(device)
        self._joined = is_gpu(device)
        self._last: DeviceEvent | None = None
        self._laps: list[tuple[DeviceEvent, DeviceEvent] | None] = []

    def skip(self) -> None:
        """Count a piece that is no work."""
        self._laps.append(None)

    def take(self, body: Callable[[], T]) -> T:
        """Time the device's work for ``body``, and return the result of ``body``."""
        start = self._last if self._joined and self._last is not None else self._now()
        made = body()
        self._last = self._now()
        self._laps.append((start, self._last))
        return made

    def _now(self) -> DeviceEvent:
        event = self._streams.event(timing=True)
        event.record()
        return event

    def seconds(self) -> list[float]:
        """Wait for the work, and return the seconds of each piece."""
        synchronize_stream(self._device)
        return [0.0 if lap is None else lap[1].seconds_since(lap[0]) for lap in self._laps]


def _rounds(
    stage: nn.Module, inputs: TensorTuple, device: torch.device
) -> list[tuple[float, float]]:
    """Return the seconds of a forward and a backward of each round, after one that is dropped.

    Rounds follow each other without a wait: a GPU has work queued, and no launch is timed.
    """
    laps = Laps(device)
    ones: list[torch.Tensor] = []
    for _ in range(ROUNDS + 1):
        outputs = forward(stage, inputs, laps)
        # Made in the round that is dropped: to write them is no work of a layer.
        ones = ones or list(map(torch.ones_like, outputs))
        backward(outputs, ones, laps)
    seconds = laps.seconds()
    return list(zip(seconds[::2], seconds[1::2], strict=True))[1:]


def forward(layer: Callable[[Any], Any], inputs: TensorTuple, laps: Laps) -> TensorTuple:
    """Run a layer's forward pass, timed as a lap; return its outputs."""
    given = inputs[0] if len(inputs) == 1 else inputs
    return as_tuple(laps.take(lambda: layer(given)))


def as_tuple(made: torch.Tensor | Sequence[torch.Tensor]) -> TensorTuple:
    """Return a layer's output, one tensor or several, as a tuple."""
    return (made,) if isinstance(made, torch.Tensor) else tuple(made)


def backward(outputs: TensorTuple, gradients: Sequence[torch.Tensor], laps: Laps) -> None:
    """Run a layer's backward pass from the gradients of its outputs, timed as a lap."""
    pairs = zip(outputs, gradients, strict=True)
    learnt = [(output, gradient) for output, gradient in pairs if output.requires_grad]
    if not learnt:
        laps.skip()
        return
    ends = [output for output, _ in learnt]
    starts = [gradient for _, gradient in learnt]
    laps.take(lambda: torch.autograd.backward(ends, starts))
