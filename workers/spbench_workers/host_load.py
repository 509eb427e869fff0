"""The load of a rank's host: cores, memory and network.

One rank per host adds it to its heartbeat. A reading takes about 0.1 ms in another thread than the
main one. Values that the kernel does not provide are omitted.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
ADAPTERS = Path("/sys/class/infiniband")
_IDLE = (3, 4)
"""Columns of a CPU's line in /proc/stat with its idle time, and its time of waiting for a disk."""
_TIMES = 8
"""Columns of the line that add up to all time: later ones are already in these."""
_WORD = 4
"""Bytes of a word, in which an InfiniBand port counts."""


class HostLoad:
    """The load of this host since the last call.

    Each call returns by name: ``cpu`` and ``memory``, shares of the total; ``received`` and
    ``sent``, bytes per second over all adapters except loopback.
    """

    def __init__(self, proc: Path = PROC, adapters: Path = ADAPTERS) -> None:
        self._proc = proc
        self._adapters = adapters
        self._cpu = self._read_cpu_times()
        self._bytes = self._read_network_bytes()
        self._last_time = time.monotonic()

    def __call__(self) -> dict[str, float]:
        """Return the load since the last call, without values that cannot be read."""
        now = time.monotonic()
        seconds = max(now - self._last_time, 1e-6)
        self._last_time = now
        load: dict[str, float] = {}
        busy_ticks, total_ticks = self._read_cpu_times()
        busy_before, total_before = self._cpu
        if total_ticks > total_before:
            load["cpu"] = round((busy_ticks - busy_before) / (total_ticks - total_before), 3)
        self._cpu = busy_ticks, total_ticks
        if (memory_share := self._read_memory_share()) is not None:
            load["memory"] = round(memory_share, 3)
        bytes_now = self._read_network_bytes()
        if bytes_now is not None and self._bytes is not None:
            bytes_received, bytes_sent = (
                max(0, after - before) for after, before in zip(bytes_now, self._bytes, strict=True)
            )
            load |= {
                "received": round(bytes_received / seconds),
                "sent": round(bytes_sent / seconds),
            }
        self._bytes = bytes_now
        return load

    def _read_cpu_times(self) -> tuple[int, int]:
        columns = _read_text(self._proc / "stat").partition("\n")[0].split()[1 : 1 + _TIMES]
        ticks = [int(column) for column in columns]
        idle_ticks = sum(ticks[index] for index in _IDLE if index < len(ticks))
        return sum(ticks) - idle_ticks, sum(ticks)

    def _read_memory_share(self) -> float | None:
        kib_by_name = {}
        for line in _read_text(self._proc / "meminfo").splitlines():
            name, _, amount = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                kib_by_name[name] = int(amount.split()[0])
        if len(kib_by_name) < 2 or not kib_by_name["MemTotal"]:
            return None
        return 1.0 - kib_by_name["MemAvailable"] / kib_by_name["MemTotal"]

    def _read_network_bytes(self) -> tuple[int, int] | None:
        """Return the bytes that all adapters have received and sent so far."""
        bytes_received = bytes_sent = 0
        lines = _read_text(self._proc / "net/dev").splitlines()[2:]
        for line in lines:
            name, _, counters = line.partition(":")
            columns = counters.split()
            if name.strip() != "lo" and len(columns) > 8:
                bytes_received += int(columns[0])
                bytes_sent += int(columns[8])
        for port in self._adapters.glob("*/ports/*/counters"):
            bytes_received += _WORD * _read_count(port / "port_rcv_data")
            bytes_sent += _WORD * _read_count(port / "port_xmit_data")
        return (bytes_received, bytes_sent) if lines else None


def _read_count(path: Path) -> int:
    with suppress(ValueError):
        return int(_read_text(path))
    return 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
