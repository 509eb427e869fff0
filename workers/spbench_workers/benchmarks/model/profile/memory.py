"""Memory of layers: activations kept from forward until backward, and peaks while they run."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.autograd.profiler import profile


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
