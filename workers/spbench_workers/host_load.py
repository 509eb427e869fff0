"""The load of a rank's host, once a second: cores, memory, network and GPUs, from /proc and NVML.

One rank of each host says it with its heartbeat. A reading takes some 0.1 ms on another thread than
the rank's own, and is left out where the kernel does not tell.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
ADAPTERS = Path("/sys/class/infiniband")
NVML = "libnvidia-ml.so.1"
_IDLE = (3, 4)
_TIMES = 8
"""Of the words of a CPU's line in /proc/stat: idle and waiting for a disk; those that are times."""
_WORD = 4
"""Bytes of the words that an InfiniBand port counts."""
_FULL = 100.0


class HostLoad:
    """The load of this host since the last call.

    Each call returns, by name: ``cpu`` and ``memory``, shares of what there is; ``received`` and
    ``sent``, bytes a second over all adapters but loopback; ``gpu``, the share of time in which
    GPUs computed, their mean.
    """

    def __init__(self, proc: Path = PROC, adapters: Path = ADAPTERS) -> None:
        self._proc = proc
        self._adapters = adapters
        self._gpus = _gpu_meter()
        self._cpu = self._cpu_times()
        self._bytes = self._network()
        self._at = time.monotonic()

    def __call__(self) -> dict[str, float]:
        """Return the load since the last call; nothing of what cannot be read."""
        now = time.monotonic()
        seconds, self._at = max(now - self._at, 1e-6), now
        told: dict[str, float] = {}
        busy, total = self._cpu_times()
        busy_before, total_before = self._cpu
        if total > total_before:
            told["cpu"] = round((busy - busy_before) / (total - total_before), 3)
        self._cpu = busy, total
        if (memory := self._memory()) is not None:
            told["memory"] = round(memory, 3)
        bytes_now = self._network()
        if bytes_now is not None and self._bytes is not None:
            received, sent = (
                max(0, after - before) for after, before in zip(bytes_now, self._bytes, strict=True)
            )
            told |= {"received": round(received / seconds), "sent": round(sent / seconds)}
        self._bytes = bytes_now
        if self._gpus is not None and (gpu := self._gpus()) is not None:
            told["gpu"] = round(gpu, 3)
        return told

    def _cpu_times(self) -> tuple[int, int]:
        words = _text(self._proc / "stat").partition("\n")[0].split()[1 : 1 + _TIMES]
        times = [int(word) for word in words]
        idle = sum(times[at] for at in _IDLE if at < len(times))
        return sum(times) - idle, sum(times)

    def _memory(self) -> float | None:
        found = {}
        for line in _text(self._proc / "meminfo").splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(rest.split()[0])
        if len(found) < 2 or not found["MemTotal"]:
            return None
        return 1.0 - found["MemAvailable"] / found["MemTotal"]

    def _network(self) -> tuple[int, int] | None:
        """The bytes that all adapters have received and sent so far."""
        received = sent = 0
        lines = _text(self._proc / "net/dev").splitlines()[2:]
        for line in lines:
            name, _, rest = line.partition(":")
            words = rest.split()
            if name.strip() != "lo" and len(words) > 8:
                received, sent = received + int(words[0]), sent + int(words[8])
        for port in self._adapters.glob("*/ports/*/counters"):
            received += _WORD * _count(port / "port_rcv_data")
            sent += _WORD * _count(port / "port_xmit_data")
        return (received, sent) if lines else None


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def _gpu_meter() -> Callable[[], float | None] | None:
    """Return what asks NVML how busy the GPUs are.

    None where there is no NVML, or no GPU.
    """
    try:
        library = ctypes.CDLL(NVML)
        count = ctypes.c_uint(0)
        if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return None
        handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if not library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                handles.append(handle)
    except (OSError, AttributeError):
        return None

    def busy() -> float | None:
        shares = []
        for handle in handles:
            told = _Utilization()
            if not library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(told)):
                shares.append(told.gpu / _FULL)
        return sum(shares) / len(shares) if shares else None

    return busy if handles else None


def _count(path: Path) -> int:
    with suppress(ValueError):
        return int(_text(path))
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
