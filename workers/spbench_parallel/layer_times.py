"""Times of a model's layers, measured separately on this process."""

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
"""Timed rounds of each layer, of which the median counts."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The measured time of a layer.

    Attributes:
        name: Its name.
        forward_ms: Median over rounds.
        backward_ms: Median over rounds; 0 if neither it nor an earlier layer has parameters.
    """

    name: str
    forward_ms: float
    backward_ms: float


def measure_layer_times(
    model: Model,
    images: int,
    device: torch.device,
    precision: Precision,
    seed: int,
    progress: Progress = NO_PROGRESS,
) -> list[LayerTime]:
    """Measure each layer separately, and equal layers only once.

    Only one layer at a time is in memory. On a GPU, layers are computed as in the model. On the
    host, layers in 16-bit formats are computed in fp32, like most CPUs multiply these numbers
    anyway.

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
    times_by_layer_key: dict[object, LayerTime] = {}
    progress.begin(len(model.layers))
    for index, layer in enumerate(model.layers):
        if model.make_layer_key(index) in times_by_layer_key:
            progress.advance()
            continue
        with note_activity(f"layer {layer.name} was measured"), products or nullcontext():
            stage = build_stage(
                model, index, index + 1, DenseBuilder(), seed=seed, device=device, dtype=dtype
            )
            # A layer's input has the number format of the previous layer's output.
            input_dtype = precision.work if mixed else dtype
            inputs = _create_inputs(model.flows[index], images, random, device, input_dtype)
            seconds_by_round = _time_rounds(stage, inputs, device)
        forward_ms, backward_ms = (
            median(times) * 1000.0 for times in zip(*seconds_by_round, strict=True)
        )
        times_by_layer_key[model.make_layer_key(index)] = LayerTime(
            layer.name, forward_ms, backward_ms
        )
        progress.advance()
    return [
        replace(times_by_layer_key[model.make_layer_key(index)], name=layer.name)
        for index, layer in enumerate(model.layers)
    ]


def _create_inputs(
    flow: Flow, images: int, random: torch.Generator, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.randn((images, data.channels, data.height, data.width), generator=random)
        .to(device, dtype)
        .requires_grad_()
        for data in flow
    )


class LapTimer:
    """Times of consecutive calls, in seconds, read after the last one.

    On a GPU, each call begins where the last one ended on the current stream. So the times add up
    to the whole, and the host does not wait in between: a wait would count as work. On the host,
    each call is timed separately.

    Args:
        device: The device that does the work.
    """

    def __init__(self, device: torch.device) -> None:
        synchronize_stream(device)
        self._device = device
        self._streams = get_streams(device)
        self._is_continuous = is_gpu(device)
        self._last: DeviceEvent | None = None
        self._laps: list[tuple[DeviceEvent, DeviceEvent] | None] = []

    def skip(self) -> None:
        """Record a call without work."""
        self._laps.append(None)

    def measure(self, body: Callable[[], T]) -> T:
        """Time the device's work for ``body``, and return the result of ``body``."""
        start = (
            self._last if self._is_continuous and self._last is not None else self._record_event()
        )
        output = body()
        self._last = self._record_event()
        self._laps.append((start, self._last))
        return output

    def _record_event(self) -> DeviceEvent:
        event = self._streams.event(timing=True)
        event.record()
        return event

    def seconds(self) -> list[float]:
        """Wait for the work, and return the seconds of each call."""
        synchronize_stream(self._device)
        return [0.0 if lap is None else lap[1].seconds_since(lap[0]) for lap in self._laps]


def _time_rounds(
    stage: nn.Module, inputs: TensorTuple, device: torch.device
) -> list[tuple[float, float]]:
    """Return the forward and backward seconds of each round except the first.

    Rounds follow each other without a wait: a GPU has work queued, so that no launch is timed.
    """
    laps = LapTimer(device)
    ones: list[torch.Tensor] = []
    for _ in range(ROUNDS + 1):
        outputs = time_forward(stage, inputs, laps)
        # Created in the dropped round, since filling them is not work of the layer.
        ones = ones or list(map(torch.ones_like, outputs))
        time_backward(outputs, ones, laps)
    seconds = laps.seconds()
    return list(zip(seconds[::2], seconds[1::2], strict=True))[1:]


def time_forward(layer: Callable[[Any], Any], inputs: TensorTuple, laps: LapTimer) -> TensorTuple:
    """Run a layer's forward pass with a timer; return its outputs."""
    layer_input = inputs[0] if len(inputs) == 1 else inputs
    return as_tuple(laps.measure(lambda: layer(layer_input)))


def as_tuple(output: torch.Tensor | Sequence[torch.Tensor]) -> TensorTuple:
    """Return a layer's output as a tuple of one tensor or several."""
    return (output,) if isinstance(output, torch.Tensor) else tuple(output)


def time_backward(outputs: TensorTuple, gradients: Sequence[torch.Tensor], laps: LapTimer) -> None:
    """Run a layer's backward pass with a timer, from the gradients of its outputs."""
    pairs = zip(outputs, gradients, strict=True)
    differentiable = [(output, gradient) for output, gradient in pairs if output.requires_grad]
    if not differentiable:
        laps.skip()
        return
    tensors = [output for output, _ in differentiable]
    tensor_gradients = [gradient for _, gradient in differentiable]
    laps.measure(lambda: torch.autograd.backward(tensors, tensor_gradients))
