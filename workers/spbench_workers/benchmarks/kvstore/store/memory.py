"""Memory of a device's gradients and pulled values, on the device and on the host for MPI."""

from __future__ import annotations

import torch

from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.errors import allocating
from spbench_workers.benchmarks.kvstore.keys.arena import Arena
from spbench_workers.benchmarks.kvstore.store.base import Store


class StoreMemory:
    """Gradients and values of a rank: on the host and, where its device is a GPU, there as well.

    Args:
        gradients: This rank's gradients, on the host.
        values: The values that it pulls, on the host.
        place: The rank's device.

    Attributes:
        gradients: This rank's gradients, on the host.
        values: The values that it pulls, on the host.
        given: The gradients on its device: the same memory, if that is the host.
        got: The values on its device, likewise.
        on_gpu: Whether its device is a GPU.
        place: Its device.
    """

    def __init__(self, gradients: Arena, values: Arena, place: torch.device) -> None:
        on_gpu = is_gpu(place)
        self.gradients = gradients
        self.values = values
        self.given = self.gradients.tensor
        self.got = self.values.tensor
        if on_gpu:
            with allocating(self.given.nbytes + self.got.nbytes):
                self.given = torch.zeros_like(self.given, device=place)
                self.got = torch.zeros_like(self.got, device=place)
        self.on_gpu = on_gpu
        self.place = place

    def put(self) -> None:
        """Copy the host's gradients to the device."""
        if self.on_gpu:
            self.given.copy_(self.gradients.tensor, non_blocking=True)
            synchronize_stream(self.place)

    def fetch(self) -> None:
        """Copy the device's values to the host."""
        if self.on_gpu:
            self.values.tensor.copy_(self.got, non_blocking=True)
            synchronize_stream(self.place)

    def take(self) -> None:
        """Copy the device's gradients to the host."""
        if self.on_gpu:
            self.gradients.tensor.copy_(self.given, non_blocking=True)
            synchronize_stream(self.place)

    def bring(self) -> None:
        """Copy the host's values to the device."""
        if self.on_gpu:
            self.got.copy_(self.values.tensor, non_blocking=True)
            synchronize_stream(self.place)

    def copy(self) -> None:
        """Copy gradients over values, on the device."""
        self.got.copy_(self.given)
        synchronize_stream(self.place)


class StagedStore:
    """A store on the host for a rank whose device is a GPU: a round copies both ways.

    Args:
        store: The store, over the host's memory.
        memory: The memory.
        asynchronous: Whether `settle` changes the values. Otherwise it does not copy, so that the
            very values that the rounds brought are compared.
    """

    def __init__(self, store: Store, memory: StoreMemory, *, asynchronous: bool) -> None:
        self._store = store
        self._memory = memory
        self._asynchronous = asynchronous
        self.sent = store.sent
        self.pushes = store.pushes

    def round(self) -> None:
        self._memory.take()
        self._store.round()
        self._memory.bring()

    def settle(self) -> None:
        self._store.settle()
        if self._asynchronous:
            self._memory.bring()

    def free(self) -> None:
        self._store.free()
