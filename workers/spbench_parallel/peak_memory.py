"""Peak memory of this process or of its GPU, since the start of a measurement."""

from __future__ import annotations

import gc
import math
import resource
from pathlib import Path

import torch

from spbench_core import host_facts
from spbench_parallel.device.memory import (
    read_free_bytes,
    read_resident_bytes,
    release_memory,
    trim_heap,
)

# The share of a host's free memory that one process may use.
_FREE_SHARE = 0.5
_PROCESS = Path("/proc/self")
# Written to Linux' ``clear_refs``, it resets the peak of resident memory (proc(5)).
_RESET_PEAK = "5"


class PeakMemory:
    """A measurement of peak memory, which begins when it is created.

    Args:
        device: The GPU to measure; for the CPU, all resident memory of the process.

    Attributes:
        since_start: Whether the peak is that since the process began, since some containers do not
            allow resetting it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.since_start = False
        if device.type == "cuda":
            release_memory()
            torch.cuda.reset_peak_memory_stats(device)
            self._initial_megabytes = self.megabytes()
            return
        # Memory that was freed but not returned to the system would count from the start.
        gc.collect()
        trim_heap()
        try:
            (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
        except OSError:
            self.since_start = True
        self._initial_megabytes = read_resident_bytes() / 1e6

    @property
    def growth(self) -> float:
        """The bytes of the peak beyond the memory in use at the start."""
        return max(0.0, self.megabytes() - self._initial_megabytes) * 1e6

    def megabytes(self) -> float:
        """Return the peak since the start of the measurement, in 10^6 bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        if self.since_start:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        return _read_kib("VmHWM") * 1024 / 1e6


def available_bytes(device: torch.device) -> float:
    """Return the bytes that one process may use on a device.

    On a host it is half of the free memory.
    """
    if device.type != "cpu":
        return float(read_free_bytes(device))
    free = host_facts.collect_facts()["free_gib"]
    available = (
        _FREE_SHARE * free * 2**30 if isinstance(free, float) else float(read_free_bytes(device))
    )
    return min(available, _bytes_within_limits())


def _bytes_within_limits() -> float:
    """Return the bytes that this process may still allocate (``ulimit -d``, ``-v``)."""
    limits = {"VmData": resource.RLIMIT_DATA, "VmSize": resource.RLIMIT_AS}
    soft_limit_by_name = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    remaining_bytes = [
        limit - 1024.0 * _read_kib(name)
        for name, limit in soft_limit_by_name.items()
        if limit != resource.RLIM_INFINITY
    ]
    return max(0.0, min(remaining_bytes, default=math.inf))


def _read_kib(name: str) -> int:
    """Return a number of KiB from ``/proc/self/status``."""
    status = (_PROCESS / "status").read_text().splitlines()
    line = next(line for line in status if line.startswith(f"{name}:"))
    return int(line.split()[1])
