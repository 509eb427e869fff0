"""The most memory that this process had since it last asked."""

from __future__ import annotations

import ctypes
import gc
import resource
from pathlib import Path

import torch

from spbench_workers.device.memory import give_back

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"
"""What Linux' ``clear_refs`` takes for: begin anew with the peak of resident memory (proc(5))."""


class PeakMemory:
    """Measures from now on.

    Args:
        device: Whose memory counts: that of the GPU, or the host's, all that the process has.

    Attributes:
        since_start: Whether the peak is that since the process began: some containers do not let
            one begin anew.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self.since_start = device, False
        if device.type == "cuda":
            give_back()
            torch.cuda.reset_peak_memory_stats(device)
            return
        # What was freed stays with the process otherwise, and would count from the start.
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc's alone
            trim(0)
        try:
            (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
        except OSError:
            self.since_start = True

    def megabytes(self) -> float:
        """Return the peak since then, in 10^6 bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        if self.since_start:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        status = (_PROCESS / "status").read_text().splitlines()
        line = next(one for one in status if one.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
