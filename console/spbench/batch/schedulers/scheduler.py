"""The interface of a scheduler module, and the allocation that it is asked for."""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from spbench.errors import UsageError
from spbench.launch.detect import InstalledLauncher
from spbench.suites.settings import SCHEDULERS, BatchSettings, parse_time_limit

NOTICE = 60
"""Seconds before its time limit at which a job is told to end: what is measured is kept."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The request of a batch job to its scheduler.

    Attributes:
        name: The job's name in the queue.
        np: Ranks of its largest launch.
        ranks_per_host: Ranks on each node, where the suite says so.
        settings: Account, limits and the like.
        log: The file of what the script prints.
    """

    name: str
    np: int
    ranks_per_host: int | None
    settings: BatchSettings
    log: Path

    @property
    def nodes(self) -> int | None:
        """Nodes that are asked for; None leaves them to the scheduler."""
        if self.settings.nodes is not None or self.ranks_per_host is None:
            return self.settings.nodes
        return math.ceil(self.np / self.ranks_per_host)

    @property
    def tasks_per_node(self) -> int | None:
        """Ranks for which each node has room; None where nodes are left to the scheduler."""
        if self.nodes is None:
            return None
        return self.ranks_per_host or math.ceil(self.np / self.nodes)

    @property
    def seconds(self) -> int | None:
        """The time limit."""
        return None if self.settings.time is None else parse_time_limit(self.settings.time)

    @property
    def notice(self) -> int:
        """Seconds before the time limit at which the job is told to end."""
        return NOTICE if self.seconds is None else min(NOTICE, max(1, self.seconds // 4))


class Scheduler(Protocol):
    """A batch system. Each module of this room has one as ``SCHEDULER``."""

    name: str
    prefix: str
    """The beginning of a directive's line."""
    allocation_variables: Mapping[str, str]
    """A variable that shows its allocations to launchers, with some value."""
    job_id: str
    """The shell word of a job's number."""
    hosts_command: str
    """The shell command that prints the nodes of the allocation, one a line or several times."""
    submit_command: tuple[str, ...]
    """The command that takes a script."""
    takes_stdin: bool
    """Whether that command reads the script from its input."""

    def directives(self, allocation: Allocation) -> Iterator[str]:
        """Yield the options of the job, each for a line of its own.

        Raises:
            UsageError: It has no option for a setting.
        """

    def choose_launcher(self) -> tuple[str, InstalledLauncher | None]:
        """Return the launcher that auto means here, and how it is called where none is looked for.

        ``auto`` and None leave it to the MPI library.
        """

    def early_signal(self, allocation: Allocation) -> str | None:
        """Return a shell line that sends the script SIGTERM early, where no directive does."""


def load_scheduler(name: str) -> Scheduler:
    """Return the scheduler module's object, by one of SCHEDULERS.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in SCHEDULERS:
        raise UsageError(f"no scheduler is called {name!r}; there are {', '.join(SCHEDULERS)}")
    module = importlib.import_module(f"spbench.batch.schedulers.{name}")
    return cast(Scheduler, module.SCHEDULER)


def choose_scheduler(asked: str | None, settings: BatchSettings, path: str | None) -> Scheduler:
    """Return the scheduler that was asked for, that the settings name, or that is installed.

    Args:
        asked: ``--scheduler``.
        settings: Of the suite and the site.
        path: Where programs are looked for; None: PATH.

    Raises:
        UsageError: None is named, and none is installed.
    """
    named = asked or settings.scheduler
    if named is not None:
        return load_scheduler(named)
    for name in SCHEDULERS:
        found = load_scheduler(name)
        if shutil.which(found.submit_command[0], path=path):
            return found
    programs = ", ".join(load_scheduler(name).submit_command[0] for name in SCHEDULERS)
    raise UsageError(
        f"no batch system is installed here (none of {programs}); name one with --scheduler"
    )


def format_options(*options: tuple[str, object]) -> Iterator[str]:
    """Yield the options, with ``{}`` for their values, whose value is not None."""
    for text, value in options:
        if value is not None:
            yield text.format(value)


def format_clock_time(seconds: int) -> str:
    """Return seconds as ``1:30:00``."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
