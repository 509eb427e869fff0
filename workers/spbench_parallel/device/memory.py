"""Memory of a device: free bytes, and the release of a case's memory."""

from __future__ import annotations

import ctypes
import gc
import os
import traceback
from pathlib import Path

import torch

from spbench_parallel.device.host_memory import get_host_memory

_LARGE = 1 << 30
"""Bytes of a process from which on its heap is given back: of less no other rank has need."""


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def trim_heap() -> None:
    """Give free blocks of the heap back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device, with those that torch keeps for itself."""
    if device.type == "cuda":
        # Memory that torch keeps in this process is free as well.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def release_memory(error: BaseException | None = None) -> None:
    """Free the memory that a case has left, on a GPU and pinned too: other ranks may need it.

    Reference cycles hold memory until they are collected, and other ranks lack the memory that
    torch, or the C library, keeps for the next case. Without a GPU a small process is left alone.

    Args:
        error: The error that ended the case, whose traceback holds its functions' variables.
    """
    on_gpu = torch.cuda.is_initialized()
    if not on_gpu and resident_bytes() < _LARGE:
        return
    if error is not None:
        traceback.clear_frames(error.__traceback__)
    get_host_memory.cache_clear()
    gc.collect()
    trim_heap()
    if not on_gpu:
        return
    torch.cuda.empty_cache()
    # The next case may need it near other cores. Not all versions have a public name for it.
    empty_pinned = getattr(torch._C, "_host_emptyCache", None)
    if empty_pinned is not None:
        empty_pinned()
