"""Memory of a device: what is free, and what a case gives back."""

from __future__ import annotations

import gc
import os
import sys

import torch


def free_bytes(device: torch.device) -> int:
    """Return the bytes that are free on a device: of a GPU, what no process has."""
    if device.type == "cuda":
        # What this process keeps for itself can be had as well.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(kept)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Give back what a case has left on a GPU, and pinned memory: other ranks may need it.

    Nothing to do where no GPU was used. torch may not have been imported.
    """
    loaded = sys.modules.get("torch")
    if loaded is None or not loaded.cuda.is_initialized():
        return
    gc.collect()
    loaded.cuda.empty_cache()
    # The next case's may have to lie near other cores. Not all versions have a public name for it.
    empty_pinned = getattr(loaded._C, "_host_emptyCache", None)
    if empty_pinned is not None:
        empty_pinned()
