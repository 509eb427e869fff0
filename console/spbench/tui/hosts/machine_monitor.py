"""The load of this machine over time, read from the kernel's files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spbench.launch.finding import Finding
from spbench.launch.load import OwnRun, find_other_work
from spbench.record.machine.host_loads import LoadHistory
from spbench.record.machine.machine_files import (
    PROC,
    SYS,
    read_available_memory,
    read_lines,
    read_memory_kib,
    read_text,
)
from spbench.tui.context import ConsoleContext
from spbench_core import host_facts

_IDLE_COLUMNS = (3, 4)
"""Columns of /proc/stat with the idle time, and the time of waiting for a disk."""
_NUM_COLUMNS = 8
"""Columns of /proc/stat that add up to all time."""
_RECEIVED_COLUMN = 0
_SENT_COLUMN = 8
"""Columns of /proc/net/dev after the name of the interface."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of this machine; the speed is None if unknown."""

    name: str
    state: str
    mbit_per_s: int | None
    is_virtual: bool = False


@dataclass(slots=True)
class MachineLoad:
    """The load of this machine.

    Attributes:
        cpu: Shares of the time of all cores.
        memory: Shares of the memory.
        received_rates: Bytes per second over all interfaces except loopback.
        sent_rates: Bytes per second over all interfaces except loopback.
        load_means: The mean load of 1, 5 and 15 minutes; empty if unknown.
        total_bytes: The memory.
        available_bytes: The memory that new processes can use; None if unknown.
        findings: The load and other runs of spbench, as findings.
    """

    cpu: LoadHistory = field(default_factory=LoadHistory)
    memory: LoadHistory = field(default_factory=LoadHistory)
    received_rates: LoadHistory = field(default_factory=LoadHistory)
    sent_rates: LoadHistory = field(default_factory=LoadHistory)
    load_means: Sequence[float] = ()
    total_bytes: int = 0
    available_bytes: int | None = None
    findings: Sequence[Finding] = ()


class MachineMonitor:
    """Readings of the load of this machine.

    Args:
        proc: The kernel's folder of processes.

    Attributes:
        load: The readings so far.
        processor: The model of the first CPU; None before the first reading, or if unknown.
        interfaces: The network interfaces except loopback.
        mhz: The highest clock rate of a core now, in MHz; None if unknown.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._cpu_ticks: tuple[int, int] | None = None
        self._network_bytes: tuple[int, int] | None = None
        self._read_at = 0.0
        self.load = MachineLoad()
        self.processor: str | None = None
        self.interfaces: tuple[Interface, ...] = ()
        self.mhz: float | None = None

    def read(self, own_runs: Sequence[OwnRun] = ()) -> None:
        """Add a reading; call it in a thread, since it reads files.

        Args:
            own_runs: The runs that the console started or watches.
        """
        now = time.monotonic()
        self._add_cpu()
        self._add_memory()
        self._add_network(now - self._read_at)
        self._read_at = now
        fields = (read_text(self._proc / "loadavg") or "").split()
        self.load.load_means = [float(text) for text in fields[:3]]
        self.load.findings = tuple(find_other_work(self._proc, own_runs))
        self.processor = host_facts.read_processor()
        self.interfaces = _read_interfaces()
        self.mhz = _read_mhz(self._proc)

    def _add_cpu(self) -> None:
        fields = next(iter(read_lines(self._proc / "stat")), "").split()[1 : 1 + _NUM_COLUMNS]
        ticks = [int(text) for text in fields if text.isdigit()]
        if len(ticks) < _NUM_COLUMNS:
            return
        total = sum(ticks)
        busy = total - sum(ticks[column] for column in _IDLE_COLUMNS)
        if self._cpu_ticks is not None and total > self._cpu_ticks[1]:
            busy_before, total_before = self._cpu_ticks
            self.load.cpu.add((busy - busy_before) / (total - total_before))
        self._cpu_ticks = busy, total

    def _add_memory(self) -> None:
        self.load.total_bytes = 1024 * read_memory_kib()
        self.load.available_bytes = available_bytes = read_available_memory()
        if available_bytes is not None and self.load.total_bytes:
            self.load.memory.add(max(0.0, 1 - available_bytes / self.load.total_bytes))

    def _add_network(self, seconds: float) -> None:
        received_bytes = sent_bytes = 0
        for line in read_lines(self._proc / "net/dev"):
            name, _, text = line.partition(":")
            columns = text.split()
            if len(columns) > _SENT_COLUMN and name.strip() != "lo":
                received_bytes += int(columns[_RECEIVED_COLUMN])
                sent_bytes += int(columns[_SENT_COLUMN])
        if self._network_bytes is not None and seconds > 0:
            received_before, sent_before = self._network_bytes
            self.load.received_rates.add(max(0, received_bytes - received_before) / seconds)
            self.load.sent_rates.add(max(0, sent_bytes - sent_before) / seconds)
        self._network_bytes = received_bytes, sent_bytes


def find_own_runs(context: ConsoleContext) -> list[OwnRun]:
    """Return the runs that the console started or watches; call it in a thread.

    A run that is just starting or ending counts too, since its processes already or still use the
    machine.
    """
    # Imported here, since the engine takes 0.1 s, for which the page would otherwise wait.
    from spbench.engine.background import list_started_pids

    name_by_pid = dict.fromkeys(list_started_pids(), "a run that was started here")
    unwatched_run = context.unwatched_run
    if unwatched_run is not None and (pid := unwatched_run.read_pid()) is not None:
        name_by_pid[pid] = f"your run {unwatched_run.id}"
    watched_run = context.feed.folder if context.feed is not None else None
    if watched_run is not None and watched_run.is_alive() and (pid := watched_run.read_pid()):
        name_by_pid[pid] = f"your run {watched_run.id} (page 2)"
    return [OwnRun(name, pid) for pid, name in name_by_pid.items()]


def _read_interfaces() -> tuple[Interface, ...]:
    try:
        folders = sorted((SYS / "class/net").iterdir())
    except OSError:
        return ()
    interfaces = []
    for folder in folders:
        if folder.name != "lo" and folder.is_dir():
            speed = read_text(folder / "speed") or ""
            state = read_text(folder / "operstate") or "unknown"
            interfaces.append(
                Interface(
                    folder.name,
                    state,
                    int(speed) if speed.isdigit() else None,
                    is_virtual=not (folder / "device").exists(),
                )
            )
    return tuple(interfaces)


def _read_mhz(proc: Path) -> float | None:
    rates = [
        float(line.partition(":")[2])
        for line in read_lines(proc / "cpuinfo")
        if line.startswith("cpu MHz")
    ]
    return max(rates, default=None)
