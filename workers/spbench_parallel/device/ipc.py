"""Memory and events of a GPU that processes of one host share: CUDA IPC.

A process shares memory that it has allocated, and events that it has made, by handles; others open
these and use them as their own. `ipc_of` returns what a device has of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch

Handle = Any
"""A handle of memory, as torch makes it: a tuple that can be sent to one other process."""


class OwnEvent(Protocol):
    """An event of this process, for which others wait."""

    def record(self) -> None:
        """Set it after all work of the current stream so far."""


class OpenedEvent(Protocol):
    """An event of another process."""

    def wait(self) -> None:
        """Let later work of the current stream wait for what that process has recorded by now.

        It records before it says so by other means.
        """


class DeviceIpc(Protocol):
    """Memory and events that a process shares of its device, and opens of others."""

    @property
    def packed(self) -> OwnEvent:
        """This process's event for what it has packed."""

    @property
    def read(self) -> OwnEvent:
        """This process's event for what it has read."""

    def event_handles(self) -> tuple[bytes, bytes]:
        """Return handles of ``packed`` and ``read``.

        Raises:
            RuntimeError: The driver shares none.
        """

    def open_event(self, handle: bytes) -> OpenedEvent:
        """Return the event of another process, the same at each call.

        Raises:
            RuntimeError: The driver cannot open it.
        """

    def share(self, memory: torch.Tensor) -> Handle:
        """Return a handle of a dense tensor's memory, for one process.

        Raises:
            RuntimeError: The driver shares none.
        """

    def open_memory(self, handle: Handle) -> torch.Tensor:
        """Return the memory of another process, as bytes, until the tensor goes.

        Wait for that process's ``packed`` before the first read: opening waits for nothing.

        Raises:
            RuntimeError: The driver cannot open it.
        """


def storage_functions(storages: type) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return torch's private functions that share a storage and open a shared one.

    Args:
        storages: The class of storages, ``torch.UntypedStorage``.

    Raises:
        RuntimeError: This version of torch has neither the old names nor the new ones.
    """
    # The old names come first: torch versions with both use the new ones for other devices only.
    for share, open_shared in (
        ("_share_cuda_", "_new_shared_cuda"),
        ("_share_device_", "_new_shared_device"),
    ):
        if hasattr(storages, share) and hasattr(storages, open_shared):
            return getattr(storages, share), getattr(storages, open_shared)
    raise RuntimeError(f"torch {torch.__version__} has no known functions for CUDA IPC")


class CudaSharedEvent:
    """An event of a GPU between processes."""

    def __init__(self, device: torch.device, event: torch.cuda.Event) -> None:
        self._device = device
        self._event = event

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        self._event.wait(torch.cuda.current_stream(self._device))


class CudaIpc:
    """CUDA IPC by way of torch, which keeps memory until all who have opened it are done with it.

    A process has two events for all that it shares: drivers grant a limited number. What another
    process has packed or read is waited for with all that it packed or read before, and nothing
    that it was asked for later: nobody waits in a circle.

    Memory is opened under this process's own GPU, wherever it lies: kernels then read it where it
    is, and a process needs no context on the GPUs of others, nor to see them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._share_storage, self._open_storage = storage_functions(torch.UntypedStorage)
        self._own = torch.cuda.Event(interprocess=True), torch.cuda.Event(interprocess=True)
        self.packed, self.read = (CudaSharedEvent(device, event) for event in self._own)
        self._opened: dict[bytes, CudaSharedEvent] = {}
        self._handles: tuple[bytes, bytes] | None = None

    def event_handles(self) -> tuple[bytes, bytes]:
        if self._handles is None:
            packed, read = self._own
            self._handles = packed.ipc_handle(), read.ipc_handle()
        return self._handles

    def open_event(self, handle: bytes) -> CudaSharedEvent:
        if handle not in self._opened:
            event = torch.cuda.Event.from_ipc_handle(self._device, handle)
            self._opened[handle] = CudaSharedEvent(self._device, event)
        return self._opened[handle]

    def share(self, memory: torch.Tensor) -> Handle:
        return self._share_storage(memory.untyped_storage())

    def open_memory(self, handle: Handle) -> torch.Tensor:
        _, *fields, _ = handle
        # The last field asks torch to open an event for this memory, which it never destroys.
        # Drivers grant a limited number of events, and readers wait for `packed` anyway.
        return self._open(*fields, False)

    def _open(self, *fields: Any) -> torch.Tensor:
        """Open memory by the fields of its handle, without the sender's device."""
        storage = self._open_storage(self._device.index or 0, *fields)
        return torch.empty(0, dtype=torch.uint8, device=self._device).set_(storage)


IPC_FACTORIES: dict[str, Callable[[torch.device], DeviceIpc]] = {"cuda": CudaIpc}
"""Functions that make what a device shares, by its type."""


@cache
def get_device_ipc(device: torch.device) -> DeviceIpc:
    """Return what a device shares with other processes, the same at each call."""
    return IPC_FACTORIES[device.type](device)
