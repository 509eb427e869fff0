"""Memory of a device: free bytes, and the release of a case's memory."""

from __future__ import annotations

import gc
import os
import traceback

import torch

from spbench_workers.device.host_memory import host_memory_of


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device, with those that torch keeps for itself."""
    if device.type == "cuda":
        # Memory that torch keeps in this process is free as well.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def give_back(error: BaseException | None = None) -> None:
    """Free the memory that a case has left on a GPU, and pinned memory: other ranks may need it.

    Reference cycles hold memory until they are collected, and other ranks lack the memory that
    torch keeps for the next case. Without a GPU nothing is done.

    Args:
        error: The error that ended the case, whose traceback holds its functions' variables.
    """
    if not torch.cuda.is_initialized():
        return
    if error is not None:
        traceback.clear_frames(error.__traceback__)
    host_memory_of.cache_clear()
    gc.collect()
    torch.cuda.empty_cache()
    # The next case may need it near other cores. Not all versions have a public name for it.
    empty_pinned = getattr(torch._C, "_host_emptyCache", None)
    if empty_pinned is not None:
        empty_pinned()
