"""Memory of a device: what is free, and what a case gives back."""

from __future__ import annotations

import gc
import os
import traceback

import torch

from spbench_workers.device.host_memory import host_memory_of


def free_bytes(device: torch.device) -> int:
    """Return the bytes that are free on a device: of a GPU, what no process has."""
    if device.type == "cuda":
        # What this process keeps for itself can be had as well.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def give_back(error: BaseException | None = None) -> None:
    """Give back what a case has left on a GPU, and pinned memory: other ranks may need it.

    What references itself in a ring holds memory until it is collected; what torch keeps for the
    next case other ranks lack meanwhile. Nothing to do where no GPU was used.

    Args:
        error: What ended the case, and holds what its functions had.
    """
    if not torch.cuda.is_initialized():
        return
    if error is not None:
        traceback.clear_frames(error.__traceback__)
    host_memory_of.cache_clear()
    gc.collect()
    torch.cuda.empty_cache()
    # The next case's may have to lie near other cores. Not all versions have a public name for it.
    empty_pinned = getattr(torch._C, "_host_emptyCache", None)
    if empty_pinned is not None:
        empty_pinned()
