"""Forward and backward passes through successive layers, measured by layer."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.autograd.profiler import profile

from spbench_parallel.layer_times import LapTimer, as_tuple, time_backward, time_forward
from spbench_parallel.pipeline.deferred_weight_grad import DeferredWeightGrad
from spbench_parallel.tensors import TensorTuple
from spbench_workers.benchmarks.model.profile.subject import ProfiledModel


@dataclass(slots=True)
class MemoryUse:
    """Memory use of a piece of work.

    Attributes:
        peak: The peak in bytes, over the memory in use before.
        remaining: Bytes in use afterwards that were not before.
    """

    peak: int = 0
    remaining: int = 0


@contextmanager
def measure_memory(device: torch.device) -> Iterator[MemoryUse]:
    """Measure torch's memory on the device for the work in the block."""
    usage = MemoryUse()
    if device.type == "cuda":
        # torch counts at allocation and release, independently of the GPU's progress. Memory that
        # only the garbage collector frees must be released before.
        gc.collect()
        bytes_before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield usage
        usage.peak = torch.cuda.max_memory_allocated(device) - bytes_before
        usage.remaining = torch.cuda.memory_allocated(device) - bytes_before
        return
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # suppresses a message on stderr
    with profile(profile_memory=True) as profiler:
        yield usage
    results = profiler.kineto_results
    assert results is not None, "the profiler has ended"
    for event in results.events():
        if event.name() == "[memory]":
            usage.remaining += event.nbytes()
            usage.peak = max(usage.peak, usage.remaining)


class SavedTensorCounter:
    """A counter of tensors that layers keep for backward, each for its first layer.

    Args:
        modules: The layers; their parameters and buffers are not counted.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._counted: dict[int, object] = {}
        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                self._counted[tensor.untyped_storage().data_ptr()] = tensor
        self._bytes = 0

    @contextmanager
    def count(self, saved_bytes: list[int]) -> Iterator[None]:
        """Append to ``saved_bytes`` the bytes that the work inside saves for backward."""
        self._bytes = 0
        with saved_tensors_hooks(self._pack, lambda tensor: tensor):
            yield
        saved_bytes.append(self._bytes)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._counted:
            # The reference keeps other tensors from reusing the same address.
            self._counted[storage.data_ptr()] = storage
            self._bytes += storage.nbytes()
        return tensor


Step = Callable[[Any], Any]


@dataclass(slots=True)
class PassTimes:
    """Seconds of one pass, by layer.

    Attributes:
        forward: The forward pass.
        backward: The backward pass.
        data: The backward pass without the weight gradients that schedule zb-h1 defers.
        weights: The deferred weight gradients.
    """

    forward: list[float]
    backward: list[float]
    data: list[float]
    weights: list[float]


@dataclass(slots=True)
class PassMemory:
    """Bytes of one pass, by layer.

    Attributes:
        activation: The outputs that the layer creates.
        saved: Tensors kept from forward until backward.
        working: The peak above these while the layer runs.
    """

    activation: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    working: list[int] = field(default_factory=list)


class LayerSequence:
    """Successive layers, each with the detached output of the previous one as input.

    The loss is part of the last layer. Like in training, images get no gradient.
    """

    def __init__(self, subject: ProfiledModel) -> None:
        self._subject = subject
        last = subject.layers[-1]
        self._steps: list[Step] = [
            *subject.layers[:-1],
            lambda data: subject.compute_loss(as_tuple(last(data))),
        ]

    def compute_output(self, images: torch.Tensor) -> TensorTuple:
        """Return the output of the last layer without the loss."""
        laps = LapTimer(images.device)
        data: TensorTuple = (images,)
        with torch.no_grad():
            for layer in self._subject.layers:
                data = time_forward(layer, data, laps)
        return data

    def time_pass(self, images: torch.Tensor) -> PassTimes:
        """Time one forward and backward pass, and one with deferred weight gradients."""
        laps = LapTimer(images.device)
        self._run_pass(images, laps)
        pass_seconds = laps.seconds()
        layer_count = len(self._steps)
        deferred = DeferredWeightGrad()
        laps = LapTimer(images.device)
        self._run_pass(images, laps, deferred)
        for index in range(layer_count):
            laps.measure(partial(deferred.compute, index))
        split_seconds = laps.seconds()
        return PassTimes(
            forward=pass_seconds[:layer_count],
            backward=pass_seconds[: layer_count - 1 : -1],
            data=split_seconds[2 * layer_count - 1 : layer_count - 1 : -1],
            weights=split_seconds[2 * layer_count :],
        )

    def _run_pass(
        self, images: torch.Tensor, laps: LapTimer, deferred: DeferredWeightGrad | None = None
    ) -> None:
        """Run one forward pass, and a backward pass over the layers in reverse order."""
        inputs_and_outputs = []
        data: TensorTuple = (images,)
        for index, step in enumerate(self._steps):
            with nullcontext() if deferred is None else deferred.record(index):
                outputs = time_forward(step, data, laps)
            inputs_and_outputs.append((data, outputs))
            data = _detach(outputs)
        gradients: Sequence[torch.Tensor] = list(map(torch.ones_like, inputs_and_outputs[-1][1]))
        while inputs_and_outputs:
            inputs, outputs = inputs_and_outputs.pop()
            time_backward(outputs, gradients, laps)
            gradients = _collect_gradients(inputs)

    def measure_pass_memory(self, images: torch.Tensor) -> PassMemory:
        """Measure the memory of one pass; parameters must already have gradients."""
        device = images.device
        memory = PassMemory()
        inputs_and_outputs = []
        counter = SavedTensorCounter(self._subject.layers)
        laps = LapTimer(device)
        data: TensorTuple = (images,)
        for index, step in enumerate(self._steps):
            with counter.count(memory.saved), measure_memory(device) as usage:
                outputs = time_forward(step, data, laps)
            memory.activation.append(
                sum(map(_count_bytes, self._select_layer_outputs(index, outputs)))
            )
            memory.working.append(usage.peak - usage.remaining)
            inputs_and_outputs.append((data, outputs))
            data = _detach(outputs)
        gradients: Sequence[torch.Tensor] = list(map(torch.ones_like, inputs_and_outputs[-1][1]))
        for index in reversed(range(len(inputs_and_outputs))):
            inputs, outputs = inputs_and_outputs.pop()
            with measure_memory(device) as usage:
                time_backward(outputs, gradients, laps)
            memory.working[index] = max(memory.working[index], usage.peak)
            gradients = _collect_gradients(inputs)
        return memory

    def _select_layer_outputs(self, index: int, outputs: TensorTuple) -> TensorTuple:
        """Return the outputs that a layer creates; for the last layer the loss."""
        indices = self._subject.made_outputs
        if indices is None or index == len(self._steps) - 1:
            return outputs
        return tuple(outputs[position] for position in indices[index])


def _detach(outputs: TensorTuple) -> TensorTuple:
    return tuple(
        output.detach().requires_grad_() if output.is_floating_point() else output.detach()
        for output in outputs
    )


def _collect_gradients(inputs: TensorTuple) -> list[torch.Tensor]:
    """Return the gradients of a layer's inputs, the outputs of the previous layer."""
    return [torch.zeros_like(data) if data.grad is None else data.grad for data in inputs]


def _count_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
