"""The interface of scheduler modules, and the requested allocation."""

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
"""Seconds before its time limit at which a job gets SIGTERM, so that it keeps its results."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The request of a batch job to its scheduler.

    Attributes:
        name: The job's name in the queue.
        np: Ranks of its largest launch.
        ranks_per_host: Ranks on each node; None if the suite does not set it.
        settings: Account, limits and further settings.
        log: The file for the script's output.
    """

    name: str
    np: int
    ranks_per_host: int | None
    settings: BatchSettings
    log: Path

    @property
    def nodes(self) -> int | None:
        """The number of requested nodes; None leaves it to the scheduler."""
        if self.settings.nodes is not None or self.ranks_per_host is None:
            return self.settings.nodes
        return math.ceil(self.np / self.ranks_per_host)

    @property
    def tasks_per_node(self) -> int | None:
        """The requested ranks per node; None if the scheduler chooses the nodes."""
        if self.nodes is None:
            return None
        return self.ranks_per_host or math.ceil(self.np / self.nodes)

    @property
    def seconds(self) -> int | None:
        """The time limit in seconds; None if there is none."""
        return None if self.settings.time is None else parse_time_limit(self.settings.time)

    @property
    def notice(self) -> int:
        """Seconds before the time limit at which the job gets SIGTERM."""
        return NOTICE if self.seconds is None else min(NOTICE, max(1, self.seconds // 4))


class Scheduler(Protocol):
    """A batch system. Each module of this package has one as ``SCHEDULER``."""

    name: str
    prefix: str
    """The beginning of each line with a directive."""
    allocation_variables: Mapping[str, str]
    """A variable by which launchers recognise its allocations, with an example value."""
    job_id: str
    """The shell expression of a job's number."""
    hosts_command: str
    """The shell command that prints the nodes of the allocation, one per line.

    A node may appear several times.
    """
    submit_command: tuple[str, ...]
    """The command that submits a script."""
    takes_stdin: bool
    """Whether that command reads the script from stdin."""

    def directives(self, allocation: Allocation) -> Iterator[str]:
        """Yield the options of the job, one per line of the script.

        Raises:
            UsageError: The scheduler has no option for a setting.
        """

    def choose_launcher(self) -> tuple[str, InstalledLauncher | None]:
        """Return the name of the launcher for ``launcher: auto``, and its executable.

        ``auto`` leaves the choice to the MPI library, and None leaves the search to the launcher.
        """

    def early_signal(self, allocation: Allocation) -> str | None:
        """Return a shell line that sends SIGTERM early; None if a directive does it."""


def load_scheduler(name: str) -> Scheduler:
    """Return the scheduler with a name of SCHEDULERS.

    Raises:
        UsageError: The name is unknown.
    """
    if name not in SCHEDULERS:
        raise UsageError(f"no scheduler is called {name!r}; there are {', '.join(SCHEDULERS)}")
    module = importlib.import_module(f"spbench.batch.schedulers.{name}")
    return cast(Scheduler, module.SCHEDULER)


def choose_scheduler(requested: str | None, settings: BatchSettings, path: str | None) -> Scheduler:
    """Return the scheduler of the command line or the settings, or the installed one.

    Args:
        requested: The value of ``--scheduler``.
        settings: The settings of the suite and the site.
        path: The search path of programs; None: PATH.

    Raises:
        UsageError: No scheduler is configured or installed.
    """
    configured = requested or settings.scheduler
    if configured is not None:
        return load_scheduler(configured)
    for name in SCHEDULERS:
        scheduler = load_scheduler(name)
        if shutil.which(scheduler.submit_command[0], path=path):
            return scheduler
    programs = ", ".join(load_scheduler(name).submit_command[0] for name in SCHEDULERS)
    raise UsageError(
        f"no batch system is installed here (none of {programs}); name one with --scheduler"
    )


def format_options(*options: tuple[str, object]) -> Iterator[str]:
    """Yield the options with a value; ``{}`` is replaced by the value."""
    for text, value in options:
        if value is not None:
            yield text.format(value)


def format_clock_time(seconds: int) -> str:
    """Return seconds in hours, minutes and seconds, such as ``1:30:00``."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
