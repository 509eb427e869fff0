"""Where a device has its gradients and what it gets, and the host's memory that messages use."""

from __future__ import annotations

import torch

from spbench_workers.device.streams import synchronize
from spbench_workers.kvstore.arena import Arena
from spbench_workers.kvstore.base import Store


class Memory:
    """Both on the host and, where a rank's device is a GPU, there as well.

    Args:
        gradients: What this rank gives, on the host.
        values: What it gets, on the host.
        place: The rank's device.

    Attributes:
        gradients: What this rank gives, on the host.
        values: What it gets, on the host.
        given: The gradients on its device: the same memory, if that is the host.
        got: The values on its device, likewise.
    """

    def __init__(self, gradients: Arena, values: Arena, place: torch.device) -> None:
        on_gpu = place.type == "cuda"
        self.gradients, self.values = gradients, values
        self.given, self.got = self.gradients.tensor, self.values.tensor
        if on_gpu:
            self.given = torch.zeros_like(self.given, device=place)
            self.got = torch.zeros_like(self.got, device=place)
        self._on_gpu, self._place = on_gpu, place

    def put(self) -> None:
        """Bring the host's gradients to the device."""
        if self._on_gpu:
            self.given.copy_(self.gradients.tensor)
            synchronize(self._place)

    def fetch(self) -> None:
        """Bring the device's values to the host."""
        if self._on_gpu:
            self.values.tensor.copy_(self.got)
            synchronize(self._place)


class StagedStore:
    """A store of the host for a device that is a GPU: all is copied there and back in a round.

    Args:
        store: The store, over the host's memory.
        memory: The memory.
    """

    def __init__(self, store: Store, memory: Memory) -> None:
        self._store, self._memory = store, memory
        self.sent, self.pushes = store.sent, store.pushes

    def round(self) -> None:
        self._memory.gradients.tensor.copy_(self._memory.given)
        self._store.round()
        self._bring()

    def settle(self) -> None:
        self._store.settle()
        self._bring()

    def free(self) -> None:
        self._store.free()

    def _bring(self) -> None:
        self._memory.got.copy_(self._memory.values.tensor)
        synchronize(self._memory.got.device)
