"""Peak memory of this process, or of its GPU, since the start of a measurement."""

from __future__ import annotations

import gc
import math
import resource
from pathlib import Path

import torch

from spbench_core import host_facts
from spbench_parallel.device.memory import free_bytes, release_memory, resident_bytes, trim_heap

_FREE_SHARE = 0.5
_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"
"""The value that resets the peak of resident memory in Linux' ``clear_refs`` (proc(5))."""


class PeakMemory:
    """A measurement of peak memory, from its making on.

    Args:
        device: The GPU whose memory counts; for the CPU, all resident memory of the process.

    Attributes:
        since_start: Whether the peak is that since the process began: some containers do not let
            reset it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.since_start = False
        if device.type == "cuda":
            release_memory()
            torch.cuda.reset_peak_memory_stats(device)
            self._begun = self.megabytes()
            return
        # Freed memory stays with the process otherwise, and would count from the start.
        gc.collect()
        trim_heap()
        try:
            (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
        except OSError:
            self.since_start = True
        self._begun = resident_bytes() / 1e6

    @property
    def grown(self) -> float:
        """The bytes of the peak beyond what was in use at the start."""
        return max(0.0, self.megabytes() - self._begun) * 1e6

    def megabytes(self) -> float:
        """Return the peak since the start of the measurement, in 10^6 bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        if self.since_start:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        return _kib("VmHWM") * 1024 / 1e6


def room_of(device: torch.device) -> float:
    """Return the bytes that one process may take of a device: of a host, half of what is free."""
    if device.type != "cpu":
        return float(free_bytes(device))
    free = host_facts.facts()["free_gib"]
    room = _FREE_SHARE * free * 2**30 if isinstance(free, float) else float(free_bytes(device))
    return min(room, _left_to_process())


def _left_to_process() -> float:
    """Return the bytes that this process may yet take by its own limits (``ulimit -d``, ``-v``)."""
    limits = {"VmData": resource.RLIMIT_DATA, "VmSize": resource.RLIMIT_AS}
    soft = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    rooms = [
        limit - 1024.0 * _kib(name)
        for name, limit in soft.items()
        if limit != resource.RLIM_INFINITY
    ]
    return max(0.0, min(rooms, default=math.inf))


def _kib(name: str) -> int:
    """Return a number of KiB from Linux' facts about this process."""
    status = (_PROCESS / "status").read_text().splitlines()
    line = next(one for one in status if one.startswith(f"{name}:"))
    return int(line.split()[1])
