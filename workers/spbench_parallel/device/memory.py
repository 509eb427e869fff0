"""Device memory: free bytes, and the release of memory after a case."""

from __future__ import annotations

import ctypes
import gc
import os
import traceback
from pathlib import Path

import torch

from spbench_parallel.device.host_memory import get_staging_buffers

# A smaller process keeps its heap: other ranks do not need those bytes.
MIN_RESIDENT_BYTES = 1 << 30


def read_resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def trim_heap() -> None:
    """Return free heap blocks to the system, if the C library supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def read_free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device, including torch's cache."""
    if device.type == "cuda":
        # Memory in torch's cache is free for this process too.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(cached)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def release_memory(
    error: BaseException | None = None, *, min_resident_bytes: int = MIN_RESIDENT_BYTES
) -> None:
    """Free the memory that a case has left behind, including GPU and pinned memory.

    Reference cycles hold memory until they are collected. Torch and the C library keep freed memory
    for the next case, which other ranks then lack.

    Args:
        error: The error that ended the case. Its traceback holds local variables, which are
            cleared.
        min_resident_bytes: Without a GPU, a process with fewer bytes keeps its memory.
    """
    on_gpu = torch.cuda.is_initialized()
    if not on_gpu and read_resident_bytes() < min_resident_bytes:
        return
    if error is not None:
        traceback.clear_frames(error.__traceback__)
    get_staging_buffers.cache_clear()
    gc.collect()
    trim_heap()
    if not on_gpu:
        return
    torch.cuda.empty_cache()
    # The next case may need pinned memory near other cores. Not all versions of torch have
    # a public name for this.
    empty_pinned = getattr(torch._C, "_host_emptyCache", None)
    if empty_pinned is not None:
        empty_pinned()
