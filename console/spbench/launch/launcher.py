"""The interface of a launcher module, and the job that it starts."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from spbench.suites.settings import LaunchSettings

# A launcher without a hostfile spreads its ranks over the allocation that one of these shows.
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID")
# Other batch systems, and files or lists of hosts that a launcher reads unasked:
# PE_HOSTFILE, HYDRA_HOST_FILE, COBALT_NODEFILE, OMPI_MCA_orte_default_hostfile, ..._dash_host
_HOSTS_BY_NAME = re.compile(r"^FLUX_|(HOST|NODE)_?FILE|NODELIST|DASH_HOST|^LSB_", re.IGNORECASE)

# Variables that an MPI launcher, its daemons, ssh, the shell or the dynamic linker reads.
_READ_BY_LAUNCHERS = re.compile(
    r"(LD|OMPI|OPAL|PRTE|PRRTE|PMIX|PMI|HYDRA|I_MPI|MPIEXEC|MPIRUN|MPISPAWN|MV2|MVP|SLURM|PBS|LSB|"
    r"FLUX|SSH|GLIBC|MALLOC|BASH)_|(PATH|HOME|USER|LOGNAME|SHELL|PWD|TMPDIR|TMP|TEMP|ENV|IFS)$"
)


def is_read_by_launchers(name: str) -> bool:
    """Whether a variable can change the launcher itself, and not only its ranks."""
    return _READ_BY_LAUNCHERS.match(name) is not None


def names_hosts(env: Iterable[str]) -> bool:
    """Whether variables may give a launcher hosts that are unknown to the console."""
    return any(name in ALLOCATIONS or _HOSTS_BY_NAME.search(name) for name in env)


@dataclass(frozen=True, slots=True)
class RankBlock:
    """A number of consecutive ranks on one host.

    Attributes:
        count: The number of ranks.
        hca: The adapter that they use, ``NAME`` or ``NAME:PORT``; None if it is not given.
    """

    host: str
    count: int
    hca: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One MPI launch, independent of the launcher.

    Attributes:
        np: The number of ranks.
        placement: Ranks in order, host by host. If empty, the launcher places them on this
            machine or over the batch allocation that it finds.
        settings: Binding, threads, environment and further arguments.
        program: The argv of each rank, with container and setup lines.
        private_env: spbench's own variables (collector, token, run). They reach the ranks but must
            never appear in argv, because they contain a secret.
        oversubscribed: Whether a host has more ranks than slots.
        hostfile: The path of the file with the text of `Launcher.hostfile`; None without one.
        library: The ranks' MPI library, one of `Launcher.libraries`; empty if unknown.
    """

    np: int
    placement: tuple[RankBlock, ...]
    settings: LaunchSettings
    program: tuple[str, ...]
    private_env: Mapping[str, str]
    oversubscribed: bool
    hostfile: Path | None
    library: str = ""

    @property
    def binding(self) -> Literal["core", "numa", "none"]:
        """The binding that ``bind`` means; auto is one core per rank if no core is shared."""
        if self.settings.bind != "auto":
            return self.settings.bind
        threads = self.settings.threads
        shares_cores = self.oversubscribed or (threads != "auto" and threads > 1)
        return "none" if shares_cores else "core"

    @property
    def requested_placement(self) -> dict[str, Any]:
        """The binding and the hosts of the ranks, for comparison with the actual ones.

        ``bind`` is ``own`` if auto gives each rank its own cores, and None if it leaves the binding
        to the launcher. ``hosts`` are name, ranks and adapter, in the order of the ranks.
        """
        bind: str | None = self.settings.bind
        if bind == "auto":
            bind = "own" if self.binding == "core" else None
        hosts = [[block.host, block.count, block.hca] for block in self.placement]
        return {"bind": bind, "hosts": hosts}

    @property
    def rank_env(self) -> Mapping[str, str]:
        """The variables that the settings give the ranks; ``env`` overrides ``threads``."""
        threads = self.settings.threads
        env = {} if threads == "auto" else {"OMP_NUM_THREADS": str(threads)}
        return env | self.settings.env

    @property
    def hidden_env(self) -> Mapping[str, str]:
        """The part of `rank_env` that is passed in the environment, not in argv.

        Every user of the host can read the arguments of a process, but only its owner can read its
        environment. Variables that would change the launcher itself are left out.
        """
        rank_env = self.rank_env.items()
        return {name: value for name, value in rank_env if not is_read_by_launchers(name)}

    @property
    def ranks_by_host(self) -> Mapping[str, int]:
        """Ranks per host in the order of the placement, for dialects without adapters."""
        return count_ranks_by_host(self.placement)

    # Plug-ins made for API version 1 use these names.
    asked = requested_placement
    counts = ranks_by_host


def count_ranks_by_host(placement: Sequence[RankBlock]) -> dict[str, int]:
    """Return the number of ranks of each host, in order of first appearance."""
    ranks_by_host: dict[str, int] = {}
    for block in placement:
        ranks_by_host[block.host] = ranks_by_host.get(block.host, 0) + block.count
    return ranks_by_host


@dataclass(frozen=True, slots=True)
class Command:
    """The process of a launcher.

    Attributes:
        argv: The program and its arguments.
        env: Its whole environment.
        folder_variables: Variables that name the folder for the launcher's own files on this host.
            The console sets them to a new folder for each job and removes it afterwards.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder_variables: tuple[str, ...] = ()


FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that launchers send to ranks to end a job."""


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The end of one or more ranks, reported by a launcher.

    Attributes:
        ranks: Their numbers; empty if the launcher does not report them.
        host: The name that their host has for itself; None if it is not reported.
        signal: The signal that killed them; None if they exited.
        status: Their exit status, or the code of MPI_Abort.
        aborted: Whether they called MPI_Abort.
    """

    ranks: tuple[int, ...] = ()
    host: str | None = None
    signal: int | None = None
    status: int | None = None
    aborted: bool = False

    @property
    def killed(self) -> bool:
        """Whether a signal killed them that launchers do not send to end a job."""
        return self.signal is not None and self.signal not in FORWARDED_SIGNALS

    @property
    def description(self) -> str:
        """``was killed by signal 9 (SIGKILL)``, without the subject."""
        many = len(self.ranks) > 1
        if self.signal is not None:
            return f"{'were' if many else 'was'} killed by {signal_name(self.signal)}"
        if self.aborted:
            return f"called MPI_Abort with code {self.status}"
        return f"exited with status {self.status}"

    @property
    def message(self) -> str:
        """``rank 2 on node02 was killed by signal 9 (SIGKILL)``."""
        ranks_text = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        subject = f"ranks {ranks_text}" if len(self.ranks) > 1 else f"rank {ranks_text}"
        if not self.ranks:
            subject = "a rank"
        location = f" on {self.host}" if self.host else ""
        return f"{subject}{location} {self.description}"

    # Plug-ins made for API version 1 use these names.
    how = description
    sentence = message


def signal_name(number: int) -> str:
    """Return ``signal 9 (SIGKILL)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class LostConnection:
    """A lost connection to a host, reported by a launcher or its ssh.

    Attributes:
        host: The host as the message spells it; None if the message names no host.
        message: The message itself.
    """

    host: str | None
    message: str


@dataclass(frozen=True, slots=True)
class LauncherReport:
    """The end of a job, from the output of its launcher.

    Attributes:
        ends: Ends of ranks, in the order of the messages.
        reason: A message about the job as a whole; None if there is none.
        decisive: Whether the reason explains the end of the job, in spite of any ends of ranks.
        kills: Whether the launcher ends the ranks of a job by SIGKILL and reports those ends too.
        lost: Connections to hosts that are reported as lost, in order.
        follows: Whether the reason may also be a consequence of a rank's end.
        survivors: Ranks that ended because their connection to another rank had ended.
    """

    ends: tuple[RankEnd, ...] = ()
    reason: str | None = None
    decisive: bool = False
    kills: bool = False
    lost: tuple[LostConnection, ...] = ()
    follows: bool = False
    survivors: frozenset[int] = frozenset()

    @property
    def killed(self) -> tuple[RankEnd, ...]:
        """The ends by signals that did not come from the launcher."""
        ends = self.ends
        if self.kills:
            # after the exit of a rank, the launcher itself kills the others
            exit_indices = (index for index, end in enumerate(ends) if end.signal is None)
            first_exit = next(exit_indices, len(ends))
            ends = tuple(
                end
                for index, end in enumerate(ends)
                if index < first_exit or end.signal != signal.SIGKILL
            )
        return tuple(end for end in ends if end.killed)

    @property
    def message(self) -> str | None:
        """The most specific cause: a lost host, a killed rank, a reason, an end."""
        lost = next((connection.message for connection in self.lost), None)
        killed = next((end.message for end in self.killed), None)
        return lost or killed or self.reason or next((end.message for end in self.ends), None)

    # plug-ins made for API version 1 use this name
    sentence = message


@dataclass(frozen=True, slots=True)
class LauncherTraits:
    """Facts about a launcher that other modules use. A plug-in may leave them out.

    Attributes:
        program: The name of its program.
        title: The name of its project, for people who choose a launcher.
        starts: The MPI libraries with ranks that it can start, for people.
        preference: The position of this launcher among the launchers of each MPI library that
            includes it. 0 is the best.
        dropped_in: The first major version of a library that no longer includes it.
        allocation_variable: The variable of an allocation in which ``auto`` also tries it.
        places_ranks: Whether it takes the hosts of an allocation. These are unknown before the
            launch, and ssh need not reach them.
        needs_hostfile: Whether it cannot find the hosts of a batch job without a hostfile.
    """

    program: str = ""
    title: str = ""
    starts: str = ""
    preference: Mapping[str, int] = field(default_factory=dict)
    dropped_in: Mapping[str, int] = field(default_factory=dict)
    allocation_variable: str | None = None
    places_ranks: bool = False
    needs_hostfile: bool = False


def get_traits(launcher: Launcher) -> LauncherTraits:
    """Return the traits of a launcher, or the defaults for a plug-in without traits."""
    return getattr(launcher, "traits", None) or LauncherTraits()


class Launcher(Protocol):
    """The interface of a launcher, which each module of `launchers` implements.

    The module defines it as ``LAUNCHER``.
    """

    name: str
    libraries: frozenset[str]
    """The MPI libraries with ranks that it starts, such as openmpi or mpich."""
    shows_binding: str
    """The launch settings of a suite that make it print the binding of ranks."""
    resolves_names: bool
    """Whether it asks the resolver for its hosts, which does not know aliases of ssh."""

    helper: str | None
    """The program that it starts on each host by ssh, with hidden output.

    None if it reports problems of a host itself.
    """

    def candidates(self, env: Mapping[str, str], interpreter_folder: Path) -> Sequence[Path]:
        """Return possible paths of its program, those next to the interpreter first."""

    def version(self, executable: Path) -> str | None:
        """Return one line with program and version; None if it is another program."""

    def hostfile(self, placement: Sequence[RankBlock]) -> str | None:
        """Return the hostfile's text in its dialect; None if it needs no hostfile.

        Raises:
            UsageError: A host cannot be written in this dialect, such as IPv6 for mpirun_rsh.
        """

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return argv and environment of a job; ``env`` is the console's environment."""

    def parse_output(self, output: str) -> LauncherReport:
        """Return the ends of ranks and of the job that its output reports.

        A plug-in may instead define it as ``said``, its first name in plug-in API 1.
        """


# Plug-ins made for API version 1 use these names.
Placed = RankBlock
Said = LauncherReport
PASSED_ON = FORWARDED_SIGNALS
counts = count_ranks_by_host
traits_of = get_traits
