"""Passes through a model's layers in a row, forward and back, each layer by itself."""

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
        left: Bytes in use afterwards that were not before.
    """

    peak: int = 0
    left: int = 0


@contextmanager
def measure_memory(device: torch.device) -> Iterator[MemoryUse]:
    """Measure the memory that torch takes on the device for the work inside."""
    use = MemoryUse()
    if device.type == "cuda":
        # torch counts when memory is asked for and given back, whatever the GPU does meanwhile;
        # memory that only the collector frees must be gone before.
        gc.collect()
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield use
        use.peak = torch.cuda.max_memory_allocated(device) - before
        use.left = torch.cuda.memory_allocated(device) - before
        return
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # else it says on stderr that it starts
    with profile(profile_memory=True) as told:
        yield use
    results = told.kineto_results
    assert results is not None, "the profiler has ended"
    for event in results.events():
        if event.name() == "[memory]":
            use.left += event.nbytes()
            use.peak = max(use.peak, use.left)


class SavedTensorCounter:
    """A counter of tensors that layers keep for backward; one kept by two counts for the first.

    Args:
        modules: The layers, whose parameters and statistics are not counted.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._seen: dict[int, object] = {}
        for module in modules:
            for tensor in (*module.parameters(), *module.buffers()):
                self._seen[tensor.untyped_storage().data_ptr()] = tensor
        self._bytes = 0

    @contextmanager
    def count(self, found: list[int]) -> Iterator[None]:
        """Append to ``found`` the bytes that the work inside keeps."""
        self._bytes = 0
        with saved_tensors_hooks(self._pack, lambda tensor: tensor):
            yield
        found.append(self._bytes)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            # It is held, so that no other tensor comes to lie at the same place.
            self._seen[storage.data_ptr()] = storage
            self._bytes += storage.nbytes()
        return tensor


Step = Callable[[Any], Any]


@dataclass(slots=True)
class PassTimes:
    """Seconds of one pass, by layer.

    Attributes:
        forward: The forward pass.
        backward: The backward pass.
        data: The backward pass without the gradients of weights that schedule zb-h1 computes later.
        weights: These.
    """

    forward: list[float]
    backward: list[float]
    data: list[float]
    weights: list[float]


@dataclass(slots=True)
class PassMemory:
    """Bytes of one pass, by layer.

    Attributes:
        activation: The outputs that it makes.
        kept: Tensors kept from forward until backward.
        working: The peak beside these while the layer runs.
    """

    activation: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    working: list[int] = field(default_factory=list)


class LayerRow:
    """A model's layers in a row, each fed with the detached output of the one before.

    The loss counts as a part of the last layer. As in training, the images get no gradient.
    """

    def __init__(self, subject: ProfiledModel) -> None:
        self._subject = subject
        last = subject.layers[-1]
        self._steps: list[Step] = [
            *subject.layers[:-1],
            lambda data: subject.loss(as_tuple(last(data))),
        ]

    def compute_output(self, images: torch.Tensor) -> TensorTuple:
        """Return the output of the last layer, without the loss."""
        laps = LapTimer(images.device)
        data: TensorTuple = (images,)
        with torch.no_grad():
            for layer in self._subject.layers:
                data = time_forward(layer, data, laps)
        return data

    def time_pass(self, images: torch.Tensor) -> PassTimes:
        """Time one pass forward and back, and one whose gradients of weights come later."""
        laps = LapTimer(images.device)
        self._pass(images, laps)
        seconds = laps.seconds()
        count = len(self._steps)
        later = DeferredWeightGrad()
        laps = LapTimer(images.device)
        self._pass(images, laps, later)
        for place in range(count):
            laps.measure(partial(later.compute, place))
        apart = laps.seconds()
        return PassTimes(
            forward=seconds[:count],
            backward=seconds[: count - 1 : -1],
            data=apart[2 * count - 1 : count - 1 : -1],
            weights=apart[2 * count :],
        )

    def _pass(
        self, images: torch.Tensor, laps: LapTimer, later: DeferredWeightGrad | None = None
    ) -> None:
        """Run one pass forward and back; of the layers in reverse where it goes back."""
        passed = []
        data: TensorTuple = (images,)
        for place, step in enumerate(self._steps):
            with nullcontext() if later is None else later.record(place):
                outputs = time_forward(step, data, laps)
            passed.append((data, outputs))
            data = _cut_off(outputs)
        gradients: Sequence[torch.Tensor] = list(map(torch.ones_like, passed[-1][1]))
        while passed:
            inputs, outputs = passed.pop()
            time_backward(outputs, gradients, laps)
            gradients = _gradients(inputs)

    def measure_pass_memory(self, images: torch.Tensor) -> PassMemory:
        """Measure the memory of one pass; earlier ones must have made the parameters' gradients."""
        device = images.device
        memory = PassMemory()
        passed = []
        kept = SavedTensorCounter(self._subject.layers)
        laps = LapTimer(device)
        data: TensorTuple = (images,)
        for place, step in enumerate(self._steps):
            with kept.count(memory.kept), measure_memory(device) as use:
                outputs = time_forward(step, data, laps)
            memory.activation.append(sum(map(_bytes, self._made(place, outputs))))
            memory.working.append(use.peak - use.left)
            passed.append((data, outputs))
            data = _cut_off(outputs)
        gradients: Sequence[torch.Tensor] = list(map(torch.ones_like, passed[-1][1]))
        for place in reversed(range(len(passed))):
            inputs, outputs = passed.pop()
            with measure_memory(device) as use:
                time_backward(outputs, gradients, laps)
            memory.working[place] = max(memory.working[place], use.peak)
            gradients = _gradients(inputs)
        return memory

    def _made(self, place: int, outputs: TensorTuple) -> TensorTuple:
        """Return those of a layer's outputs that it makes itself; of the last one the loss."""
        made = self._subject.made_outputs
        if made is None or place == len(self._steps) - 1:
            return outputs
        return tuple(outputs[at] for at in made[place])


def _cut_off(outputs: TensorTuple) -> TensorTuple:
    return tuple(
        output.detach().requires_grad_() if output.is_floating_point() else output.detach()
        for output in outputs
    )


def _gradients(inputs: TensorTuple) -> list[torch.Tensor]:
    """Return the gradients of a layer's inputs, which are those of the outputs before it."""
    return [torch.zeros_like(data) if data.grad is None else data.grad for data in inputs]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
