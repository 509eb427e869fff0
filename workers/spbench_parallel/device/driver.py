"""The calls of NVIDIA's driver API that are needed before or beside torch."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_LIBRARY = "libcuda.so.1"
_LONGEST_ADDRESS = 32


class Driver:
    """NVIDIA's driver API in this process; its devices are those that CUDA_VISIBLE_DEVICES shows.

    Args:
        library: The loaded library.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def count_gpus(self) -> int:
        """Return the number of GPUs; 0 where the driver does not work."""
        found = ctypes.c_int(0)
        if self._library.cuInit(0) or self._library.cuDeviceGetCount(ctypes.byref(found)):
            return 0
        return found.value

    def read_pci_address(self, index: int) -> str | None:
        """Return the PCI address of a GPU, ``0000:81:00.0``; of a MIG instance, that of its GPU."""
        text = ctypes.create_string_buffer(_LONGEST_ADDRESS)
        device = ctypes.c_int(0)
        if self._library.cuDeviceGet(ctypes.byref(device), index):
            return None
        if self._library.cuDeviceGetPCIBusId(text, _LONGEST_ADDRESS, device):
            return None
        return text.value.decode().lower()

    def make_current(self, index: int) -> bool:
        """Make a GPU this thread's current one, by the primary context, which torch takes too."""
        device = ctypes.c_int(0)
        context = ctypes.c_void_p()
        return not (
            self._library.cuDeviceGet(ctypes.byref(device), index)
            or self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            or self._library.cuCtxSetCurrent(context)
        )


@cache
def load_driver() -> Driver | None:
    """Return the driver; None where the library is not there."""
    try:
        return Driver(ctypes.CDLL(_LIBRARY))
    except OSError:
        return None
