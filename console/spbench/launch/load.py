"""Other work on this machine: its load, and other runs of spbench."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.placement import count_cores
from spbench_core.number_text import format_quantity

BUSY_LOAD = 0.5
"""The load per core above which a host counts as busy."""
PROC = Path("/proc")
_MAX_PIDS = 4
_WAIT = "wait until it ends, or stop it: it inflates the times that are measured meanwhile"
_WAIT_FOR_ALL = (
    "wait until they end, or stop them: they inflate the times that are measured meanwhile"
)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of this machine.

    Attributes:
        minute_mean: The mean number of runnable processes over the last minute.
        num_runnable: The number of processes that are runnable now, without this one.
        cores: The number of cores that this process may use.
    """

    minute_mean: float
    num_runnable: int
    cores: int

    @property
    def limit(self) -> float:
        """The load above which the machine counts as busy."""
        return BUSY_LOAD * self.cores

    @property
    def busy(self) -> bool:
        """Whether other processes compute, both over the last minute and now."""
        return min(self.minute_mean, self.num_runnable) > self.limit

    def __str__(self) -> str:
        return f"load {self.minute_mean:g} on {format_quantity(self.cores, 'core')}"


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run of the caller: its name in texts, and its process number."""

    name: str
    pid: int


def read_load(proc: Path = PROC) -> Load | None:
    """Return the load of this machine; None if the kernel does not report it."""
    try:
        fields = (proc / "loadavg").read_text().split()
        return Load(float(fields[0]), int(fields[3].partition("/")[0]) - 1, count_cores())
    except (OSError, ValueError, IndexError):
        return None


def describe_high_load(load: str, limit: float) -> str:
    """Return a message on a load above the limit up to which times are comparable."""
    return f"{load}, from other work in the last minute, above the limit of {limit:g}"


def describe_busy_host(host: str) -> str:
    """Return the load of a host if it was high over the last minute; otherwise empty.

    Only the load of this host is known.
    """
    load = read_load() if host == socket.gethostname() else None
    return str(load) if load is not None and load.minute_mean > load.limit else ""


def find_other_runs(proc: Path = PROC) -> list[int]:
    """Return the process numbers of other runs of spbench on this machine, in order."""
    pids = []
    own_pids = {os.getpid(), *_find_ancestors(proc)}
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            argv = (folder / "cmdline").read_bytes().split(b"\0")
            if int(folder.name) not in own_pids and _is_run(argv):
                pids.append(int(folder.name))
    return sorted(pids)


def _find_ancestors(proc: Path) -> Iterator[int]:
    # the command line of a `timeout` or `srun` above this process contains `spbench run` too
    pid = os.getpid()
    with suppress(OSError, ValueError, IndexError):
        while pid > 1:
            stat_fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2]
            pid = int(stat_fields.split()[1])
            yield pid


def _is_run(argv: list[bytes]) -> bool:
    """Whether a command line is ``spbench run`` or ``python -m spbench run``."""
    return any(
        os.path.basename(arg) == b"spbench" and next_arg == b"run"
        for arg, next_arg in pairwise(argv)
    )


def describe_other_work(proc: Path = PROC) -> list[str]:
    """Return a text without a full stop for each thing that keeps this machine busy."""
    return [
        finding.text for finding in find_other_work(proc) if finding.status == FindingStatus.NOTE
    ]


def find_other_work(proc: Path = PROC, own_runs: Sequence[OwnRun] = ()) -> Iterator[Finding]:
    """Yield the load of this machine, and other runs of spbench on it."""
    load = read_load(proc)
    all_pids = find_other_runs(proc)
    running = [run for run in own_runs if run.pid in all_pids]
    other_pids = [pid for pid in all_pids if all(pid != run.pid for run in running)]
    if running:
        names = " and ".join(run.name for run in running)
        yield Finding(FindingStatus.OK, "load", f"{load or 'load'}, in part from {names}")
    elif load is not None and load.busy:
        yield Finding(FindingStatus.NOTE, "load", describe_high_load(str(load), load.limit), _WAIT)
    elif load is not None:
        limit_text = f"within the limit of {load.limit:g}"
        text = f"{load} in the last minute, {limit_text}"
        if load.minute_mean > load.limit:
            running_text = format_quantity(max(0, load.num_runnable), "process", "processes")
            text = f"{load} in the last minute, but now {running_text}, {limit_text}"
        yield Finding(FindingStatus.OK, "load", text)
    if other_pids:
        is_one = len(other_pids) == 1
        runs_text = "another run" if is_one else f"{len(other_pids)} other runs"
        more = ", ..." if len(other_pids) > _MAX_PIDS else ""
        pids_text = ", ".join(map(str, other_pids[:_MAX_PIDS])) + more
        text = f"{runs_text} of spbench: process {pids_text}"
        yield Finding(FindingStatus.NOTE, "other runs", text, _WAIT if is_one else _WAIT_FOR_ALL)
