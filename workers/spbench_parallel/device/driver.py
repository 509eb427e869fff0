"""NVIDIA driver API calls that are needed before torch starts or that torch lacks."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_LIBRARY = "libcuda.so.1"
_MAX_ADDRESS_LENGTH = 32


class Driver:
    """The NVIDIA driver API in this process; it sees the GPUs in CUDA_VISIBLE_DEVICES.

    Args:
        library: The loaded library.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def count_gpus(self) -> int:
        """Return the number of GPUs; 0 if the driver does not work."""
        count = ctypes.c_int(0)
        if self._library.cuInit(0) or self._library.cuDeviceGetCount(ctypes.byref(count)):
            return 0
        return count.value

    def read_pci_address(self, index: int) -> str | None:
        """Return the PCI address of a GPU, ``0000:81:00.0``; None if it is unknown.

        A MIG instance has the address of its GPU.
        """
        text = ctypes.create_string_buffer(_MAX_ADDRESS_LENGTH)
        device = ctypes.c_int(0)
        if self._library.cuDeviceGet(ctypes.byref(device), index):
            return None
        if self._library.cuDeviceGetPCIBusId(text, _MAX_ADDRESS_LENGTH, device):
            return None
        return text.value.decode().lower()

    def make_current(self, index: int) -> bool:
        """Make a GPU current for this thread; return whether that worked.

        It uses the primary context, the one that torch uses too.
        """
        device = ctypes.c_int(0)
        context = ctypes.c_void_p()
        return not (
            self._library.cuDeviceGet(ctypes.byref(device), index)
            or self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            or self._library.cuCtxSetCurrent(context)
        )


@cache
def load_driver() -> Driver | None:
    """Return the driver; None if its library is missing."""
    try:
        return Driver(ctypes.CDLL(_LIBRARY))
    except OSError:
        return None
