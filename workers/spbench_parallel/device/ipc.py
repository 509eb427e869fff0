"""CUDA IPC: GPU memory and events shared between processes of one host.

A process shares its memory and events by handles, which other processes open. `get_device_ipc`
returns the interface of a device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch

Handle = Any
"""Torch's handle of memory: a tuple that can be sent to one other process."""


class OwnEvent(Protocol):
    """An event of this process for which other processes wait."""

    def record(self) -> None:
        """Set the event after all work of the current stream so far."""


class OpenedEvent(Protocol):
    """An event of another process."""

    def wait(self) -> None:
        """Make the current stream wait for the latest record of that process.

        The process must record the event before it announces that by other means.
        """


class DeviceIpc(Protocol):
    """Memory and events that a process shares with others, and opens of others."""

    @property
    def packed_event(self) -> OwnEvent:
        """This process's event for packed pieces."""

    @property
    def read_event(self) -> OwnEvent:
        """This process's event for pieces that it has read."""

    def event_handles(self) -> tuple[bytes, bytes]:
        """Return handles of ``packed_event`` and ``read_event``.

        Raises:
            RuntimeError: The driver cannot share events.
        """

    def open_event(self, handle: bytes) -> OpenedEvent:
        """Return the event of another process; each call returns the same object.

        Raises:
            RuntimeError: The driver cannot open it.
        """

    def share(self, memory: torch.Tensor) -> Handle:
        """Return a handle of a dense tensor's memory, for one process.

        Raises:
            RuntimeError: The driver cannot share memory.
        """

    def open_memory(self, handle: Handle) -> torch.Tensor:
        """Return the memory of another process as bytes, valid while the tensor lives.

        Wait for that process's ``packed_event`` before the first read: opening waits for nothing.

        Raises:
            RuntimeError: The driver cannot open it.
        """


def find_storage_functions(storages: type) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return torch's private functions that share and open a storage.

    Args:
        storages: The storage class, ``torch.UntypedStorage``.

    Raises:
        RuntimeError: This version of torch has neither the old names nor the new ones.
    """
    # Old names first: torch versions that have both use the new names for other devices only.
    for share, open_shared in (
        ("_share_cuda_", "_new_shared_cuda"),
        ("_share_device_", "_new_shared_device"),
    ):
        if hasattr(storages, share) and hasattr(storages, open_shared):
            return getattr(storages, share), getattr(storages, open_shared)
    raise RuntimeError(f"torch {torch.__version__} has no known functions for CUDA IPC")


class CudaSharedEvent:
    """A GPU event shared between processes."""

    def __init__(self, device: torch.device, event: torch.cuda.Event) -> None:
        self._device = device
        self._event = event

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        self._event.wait(torch.cuda.current_stream(self._device))


class CudaIpc:
    """CUDA IPC through torch.

    Torch keeps shared memory until every process that opened it is done. A process shares only two
    events, because drivers limit their number. A waiter waits for all work recorded so far, but not
    for later work, so there is no circular wait.

    Memory is opened under this process's own GPU, also if it is on another one. Kernels then read
    it remotely. The process needs no context on other GPUs and need not see them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._share_storage, self._open_storage = find_storage_functions(torch.UntypedStorage)
        self._own_events = torch.cuda.Event(interprocess=True), torch.cuda.Event(interprocess=True)
        self.packed_event, self.read_event = (
            CudaSharedEvent(device, event) for event in self._own_events
        )
        self._opened_events: dict[bytes, CudaSharedEvent] = {}
        self._event_handles: tuple[bytes, bytes] | None = None

    def event_handles(self) -> tuple[bytes, bytes]:
        if self._event_handles is None:
            packed, read = self._own_events
            self._event_handles = packed.ipc_handle(), read.ipc_handle()
        return self._event_handles

    def open_event(self, handle: bytes) -> CudaSharedEvent:
        if handle not in self._opened_events:
            event = torch.cuda.Event.from_ipc_handle(self._device, handle)
            self._opened_events[handle] = CudaSharedEvent(self._device, event)
        return self._opened_events[handle]

    def share(self, memory: torch.Tensor) -> Handle:
        return self._share_storage(memory.untyped_storage())

    def open_memory(self, handle: Handle) -> torch.Tensor:
        _, *fields, _ = handle
        # The last field asks torch to open an event for this memory, which torch never destroys.
        # Drivers limit the number of events, and readers wait for `packed_event` anyway.
        return self._open_storage_memory(*fields, False)

    def _open_storage_memory(self, *fields: Any) -> torch.Tensor:
        """Open memory by the fields of its handle, without the sender's device."""
        storage = self._open_storage(self._device.index or 0, *fields)
        return torch.empty(0, dtype=torch.uint8, device=self._device).set_(storage)


IPC_FACTORIES: dict[str, Callable[[torch.device], DeviceIpc]] = {"cuda": CudaIpc}
"""Functions that create the IPC interface of a device, by device type."""


@cache
def get_device_ipc(device: torch.device) -> DeviceIpc:
    """Return the IPC interface of a device; each call returns the same object."""
    return IPC_FACTORIES[device.type](device)
