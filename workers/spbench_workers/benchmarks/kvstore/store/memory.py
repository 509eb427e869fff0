"""Memory of a device's gradients and pulled values, on the device and on the host."""

from __future__ import annotations

import torch

from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.errors import catch_out_of_memory
from spbench_workers.benchmarks.kvstore.keys.arena import Arena
from spbench_workers.benchmarks.kvstore.store.base import Store


class StoreMemory:
    """Gradients and values of a rank on the host, and on its device if that is a GPU.

    Args:
        gradients: This rank's gradients, on the host.
        values: Its pulled values, on the host.
        device: The rank's device.

    Attributes:
        gradients: This rank's gradients, on the host.
        values: Its pulled values, on the host.
        device_gradients: The gradients on the device; the same memory if that is the host.
        device_values: The values on the device; the same memory if that is the host.
        on_gpu: Whether the device is a GPU.
        device: The rank's device.
    """

    def __init__(self, gradients: Arena, values: Arena, device: torch.device) -> None:
        on_gpu = is_gpu(device)
        self.gradients = gradients
        self.values = values
        self.device_gradients = self.gradients.tensor
        self.device_values = self.values.tensor
        if on_gpu:
            with catch_out_of_memory(self.device_gradients.nbytes + self.device_values.nbytes):
                self.device_gradients = torch.zeros_like(self.device_gradients, device=device)
                self.device_values = torch.zeros_like(self.device_values, device=device)
        self.on_gpu = on_gpu
        self.device = device

    def upload_gradients(self) -> None:
        """Copy the host's gradients to the device."""
        if self.on_gpu:
            self.device_gradients.copy_(self.gradients.tensor, non_blocking=True)
            synchronize_stream(self.device)

    def download_values(self) -> None:
        """Copy the device's values to the host."""
        if self.on_gpu:
            self.values.tensor.copy_(self.device_values, non_blocking=True)
            synchronize_stream(self.device)

    def download_gradients(self) -> None:
        """Copy the device's gradients to the host."""
        if self.on_gpu:
            self.gradients.tensor.copy_(self.device_gradients, non_blocking=True)
            synchronize_stream(self.device)

    def upload_values(self) -> None:
        """Copy the host's values to the device."""
        if self.on_gpu:
            self.device_values.copy_(self.values.tensor, non_blocking=True)
            synchronize_stream(self.device)

    def copy_on_device(self) -> None:
        """Copy gradients over values, on the device."""
        self.device_values.copy_(self.device_gradients)
        synchronize_stream(self.device)


class StagedStore:
    """A store on the host for a rank with a GPU; a round copies in both directions.

    Args:
        store: The store over the host's memory.
        memory: The memory.
        asynchronous: Whether `settle` changes the values. If not, `settle` does not copy, so that
            exactly the values of the last round are compared.
    """

    def __init__(self, store: Store, memory: StoreMemory, *, asynchronous: bool) -> None:
        self._store = store
        self._memory = memory
        self._asynchronous = asynchronous
        self.traffic = store.traffic
        self.pushes = store.pushes

    def round(self) -> None:
        self._memory.download_gradients()
        self._store.round()
        self._memory.upload_values()

    def settle(self) -> None:
        self._store.settle()
        if self._asynchronous:
            self._memory.upload_values()

    def free(self) -> None:
        self._store.free()
