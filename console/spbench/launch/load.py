"""Other work on this machine: its load, and other runs of spbench."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.placement import cores
from spbench_core.quantities import format_quantity

BUSY = 0.5
"""The load of a core above which a host is called busy."""
PROC = Path("/proc")
_WAIT = "wait until it ends, or stop it: it inflates the times that are measured meanwhile"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of this machine.

    Attributes:
        minute: The processes that ran or wanted to, on average over a minute.
        now: Those that do now, without the one that asks.
        cores: The cores that may be used.
    """

    minute: float
    now: int
    cores: int

    @property
    def busy(self) -> bool:
        """Whether others compute: over a minute, and still."""
        return min(self.minute, self.now) > BUSY * self.cores

    def __str__(self) -> str:
        return f"load {self.minute:g} on {format_quantity(self.cores, 'core')}"


def load_here(proc: Path = PROC) -> Load | None:
    """Return the load of this machine; None where the kernel does not tell it."""
    try:
        words = (proc / "loadavg").read_text().split()
        return Load(float(words[0]), int(words[3].partition("/")[0]) - 1, cores())
    except (OSError, ValueError, IndexError):
        return None


def busy_here(host: str) -> str:
    """Return the load of a host in words, where that is this one, and high; else nothing."""
    load = load_here() if host == socket.gethostname() else None
    return str(load) if load is not None and load.minute > BUSY * load.cores else ""


def other_runs(proc: Path = PROC) -> list[int]:
    """Return the processes of other runs of spbench on this machine, in order."""
    found = []
    own = {os.getpid(), *_parents(proc)}
    for place in proc.glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if int(place.name) not in own and _is_run(words):
                found.append(int(place.name))
    return sorted(found)


def _parents(proc: Path) -> Iterator[int]:
    """Yield the processes above this one: a `timeout` or `srun` has our words in its own line."""
    process = os.getpid()
    with suppress(OSError, ValueError, IndexError):
        while process > 1:
            about = (proc / str(process) / "stat").read_text().rpartition(")")[2]
            process = int(about.split()[1])
            yield process


def _is_run(words: list[bytes]) -> bool:
    """Whether a command line is of ``spbench run``, as a program or by ``python -m spbench``."""
    return any(
        os.path.basename(word) == b"spbench" and following == b"run"
        for word, following in pairwise(words)
    )


def other_work_now(proc: Path = PROC) -> list[str]:
    """Return what else keeps this machine busy, in words without a stop; nothing where it rests."""
    return [found.text for found in other_work(proc) if found.status == FindingStatus.NOTE]


def other_work(proc: Path = PROC) -> Iterator[Finding]:
    """Yield what else keeps this machine busy; where nothing does, its load."""
    load = load_here(proc)
    runs = other_runs(proc)
    if load is not None and load.busy:
        yield Finding(FindingStatus.NOTE, "load", f"{load} from other work", _WAIT)
    elif load is not None:
        yield Finding(FindingStatus.OK, "load", str(load))
    if runs:
        several = f"{len(runs)} other runs" if len(runs) > 1 else "another run"
        pids = ", ".join(map(str, runs[:4])) + ", ..." * (len(runs) > 4)
        text = f"{several} of spbench: process {pids}"
        yield Finding(FindingStatus.NOTE, "other runs", text, _WAIT)
