"""The interface of a launcher module, and the job that it is given."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from spbench.suites.settings import LaunchSettings

# a launcher without a hostfile spreads its ranks over the allocation that one of these shows
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID")
# other batch systems, and files or lists of hosts that a launcher reads without being told:
# PE_HOSTFILE, HYDRA_HOST_FILE, COBALT_NODEFILE, OMPI_MCA_orte_default_hostfile, ..._dash_host
_HOSTS_BY_NAME = re.compile(r"^FLUX_|(HOST|NODE)_?FILE|NODELIST|DASH_HOST|^LSB_", re.IGNORECASE)


# what an MPI launcher, its daemons, ssh, the shell or the dynamic linker reads for itself
_READ_BY_LAUNCHERS = re.compile(
    r"(LD|OMPI|OPAL|PRTE|PRRTE|PMIX|PMI|HYDRA|I_MPI|MPIEXEC|MPIRUN|MPISPAWN|MV2|MVP|SLURM|PBS|LSB|"
    r"FLUX|SSH|GLIBC|MALLOC|BASH)_|(PATH|HOME|USER|LOGNAME|SHELL|PWD|TMPDIR|TMP|TEMP|ENV|IFS)$"
)


def is_read_by_launchers(name: str) -> bool:
    """Return whether a variable can change the launcher itself, and not only its ranks."""
    return _READ_BY_LAUNCHERS.match(name) is not None


def names_hosts(env: Iterable[str]) -> bool:
    """Say whether variables may give a launcher hosts of which the console knows nothing."""
    return any(name in ALLOCATIONS or _HOSTS_BY_NAME.search(name) for name in env)


@dataclass(frozen=True, slots=True)
class Placed:
    """``count`` consecutive ranks on one host."""

    host: str
    count: int
    hca: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One MPI launch in words that no launcher owns.

    Attributes:
        np: Number of ranks.
        placement: Ranks in order, host by host. Empty: the launcher places them on this machine,
            or over the batch allocation it finds.
        settings: Binding, threads, environment, further arguments.
        program: What each rank runs, as argv, container and setup lines included.
        private_env: spbench's own variables (collector, token, run): they reach the ranks but
            never stand in argv.
        oversubscribed: More ranks than slots on some host.
        hostfile: Path of the file that holds `Launcher.hostfile`; None where there is none.
        library: The ranks' MPI library, as in `Launcher.libraries`; empty where it is not known.
    """

    np: int
    placement: tuple[Placed, ...]
    settings: LaunchSettings
    program: tuple[str, ...]
    private_env: Mapping[str, str]
    oversubscribed: bool
    hostfile: Path | None
    library: str = ""

    @property
    def binding(self) -> Literal["core", "numa", "none"]:
        """The binding that ``bind`` means: auto is a core for each rank that has one to itself."""
        if self.settings.bind != "auto":
            return self.settings.bind
        threads = self.settings.threads
        shared = self.oversubscribed or (threads != "auto" and threads > 1)
        return "none" if shared else "core"

    @property
    def asked(self) -> dict[str, Any]:
        """The binding and the hosts of the ranks, for comparison with where they are.

        ``bind`` is ``own`` where auto gives each rank cores of its own, and null where the launcher
        is left to its policy. ``hosts`` are name, ranks and adapter, in the ranks' order.
        """
        bind: str | None = self.settings.bind
        if bind == "auto":
            bind = "own" if self.binding == "core" else None
        hosts = [[placed.host, placed.count, placed.hca] for placed in self.placement]
        return {"bind": bind, "hosts": hosts}

    @property
    def rank_env(self) -> Mapping[str, str]:
        """The variables that the settings give the ranks; ``env`` wins over ``threads``."""
        threads = self.settings.threads
        given = {} if threads == "auto" else {"OMP_NUM_THREADS": str(threads)}
        return given | self.settings.env

    @property
    def hidden_env(self) -> Mapping[str, str]:
        """The part of `rank_env` that a launcher gets by its environment, not by its arguments.

        Everybody on the host can read the arguments of a process, and only its owner its
        environment. Variables that would change the launcher itself are left out.
        """
        rank_env = self.rank_env.items()
        return {name: value for name, value in rank_env if not is_read_by_launchers(name)}

    @property
    def counts(self) -> Mapping[str, int]:
        """Ranks a host, for dialects that know no HCA; in the order of the placement."""
        return counts(self.placement)


def counts(placement: Sequence[Placed]) -> dict[str, int]:
    """Return the ranks of each host, hosts in order of first appearance."""
    total: dict[str, int] = {}
    for placed in placement:
        total[placed.host] = total.get(placed.host, 0) + placed.count
    return total


@dataclass(frozen=True, slots=True)
class Command:
    """A launcher's process.

    Attributes:
        argv: The program and its arguments.
        env: Its whole environment.
        folder_variables: Variables that name the folder for the launcher's own files on this host.
            The console sets them to a new folder for each job and removes it afterwards.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder_variables: tuple[str, ...] = ()


PASSED_ON = (signal.SIGINT, signal.SIGTERM)
"""Signals that launchers themselves send to ranks when a job is to end."""


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The end of a rank, or of several, in the words of a launcher.

    Attributes:
        ranks: Their numbers; empty where the launcher does not tell them.
        host: The host that they ran on, by its own name; None where it is not told.
        signal: The signal that killed them; None where they ended by themselves.
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
        """Whether a signal ended them that launchers do not send to end a job."""
        return self.signal is not None and self.signal not in PASSED_ON

    @property
    def how(self) -> str:
        """``was killed by signal 9 (SIGKILL)``, without who."""
        many = len(self.ranks) > 1
        if self.signal is not None:
            return f"{'were' if many else 'was'} killed by {signal_name(self.signal)}"
        if self.aborted:
            return f"called MPI_Abort with code {self.status}"
        return f"exited with status {self.status}"

    @property
    def sentence(self) -> str:
        """``rank 2 on node02 was killed by signal 9 (SIGKILL)``."""
        shown = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        who = f"rank{'s'[: len(self.ranks) - 1]} {shown}" if self.ranks else "a rank"
        return f"{who}{f' on {self.host}' if self.host else ''} {self.how}"


def signal_name(number: int) -> str:
    """Return ``signal 9 (SIGKILL)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class LostConnection:
    """A connection to a host that a launcher, or the ssh that it started, reports as lost.

    Attributes:
        host: The host as the message spells it; None if the message names no host.
        message: The message itself.
    """

    host: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Said:
    """The end of a job, as its launcher's output tells of it.

    Attributes:
        ends: Ends of ranks, in the order in which they are told.
        reason: What is wrong with the job as a whole, in one sentence; None: nothing is told.
        decisive: Whether the reason is why the job ended, whatever became of its ranks then.
        kills: Whether the launcher ends the ranks of a job by SIGKILL, and tells of those too.
        lost: Connections to hosts that are reported as lost, in order.
        follows: Whether the reason may also be a consequence of a rank's end.
    """

    ends: tuple[RankEnd, ...] = ()
    reason: str | None = None
    decisive: bool = False
    kills: bool = False
    lost: tuple[LostConnection, ...] = ()
    follows: bool = False

    @property
    def killed(self) -> tuple[RankEnd, ...]:
        """The ends by a signal that somebody else than the launcher has sent."""
        ends = self.ends
        if self.kills:
            by_itself = (at for at, end in enumerate(ends) if end.signal is None)
            first = next(by_itself, len(ends))
            ends = tuple(
                end for at, end in enumerate(ends) if at < first or end.signal != signal.SIGKILL
            )
        return tuple(end for end in ends if end.killed)

    @property
    def sentence(self) -> str | None:
        """The most telling of it: a lost host, a killed rank, a reason, the end of a rank."""
        lost = next((connection.message for connection in self.lost), None)
        killed = next((end.sentence for end in self.killed), None)
        return lost or killed or self.reason or next((end.sentence for end in self.ends), None)


@dataclass(frozen=True, slots=True)
class LauncherTraits:
    """Facts about a launcher that matter outside of its module. A plug-in may leave them out.

    Attributes:
        program: The name of its program.
        title: Whose launcher it is, for people who choose one.
        starts: The MPI libraries whose ranks it starts, for people.
        preference: The MPI libraries that it comes with, each with its place among their launchers;
            the least is the best.
        dropped_in: The major version from which on a library does not have it any more.
        allocation_variable: The variable of an allocation in which it is also tried for ``auto``.
        places_ranks: Whether it takes hosts from an allocation by itself. These are then not known
            before the launch, and ssh need not reach them.
        needs_hostfile: Whether it does not find the hosts of a batch job by itself.
    """

    program: str = ""
    title: str = ""
    starts: str = ""
    preference: Mapping[str, int] = field(default_factory=dict)
    dropped_in: Mapping[str, int] = field(default_factory=dict)
    allocation_variable: str | None = None
    places_ranks: bool = False
    needs_hostfile: bool = False


def traits_of(launcher: Launcher) -> LauncherTraits:
    """Return the traits of a launcher; a plug-in's need not have any."""
    return getattr(launcher, "traits", None) or LauncherTraits()


class Launcher(Protocol):
    """One launcher. Each module of `launchers` has one as ``LAUNCHER``."""

    name: str
    libraries: frozenset[str]
    """MPI libraries whose ranks it starts: openmpi, mpich, intelmpi, mvapich2, mvapich."""
    shows_binding: str
    """The words of a suite's launch settings that make it print how it binds ranks."""
    resolves_names: bool
    """Whether it asks the resolver for its hosts, which knows no aliases of ssh's configuration."""

    helper: str | None
    """The program beside its own that it starts on each host by ssh, whose words it hides; None
    where it tells itself what is wrong with a host."""

    def candidates(self, env: Mapping[str, str], beside: Path) -> Sequence[Path]:
        """Return where its program may be, best first: beside the interpreter, then PATH."""

    def version(self, executable: Path) -> str | None:
        """Return one line that names program and version; None if it is another program."""

    def hostfile(self, placement: Sequence[Placed]) -> str | None:
        """Return the hostfile's text in its dialect; None where it needs none.

        Raises:
            UsageError: A host cannot be written in this dialect (IPv6 under mpirun_rsh, say).
        """

    def command(self, executable: Path, job: JobSpec, env: Mapping[str, str]) -> Command:
        """Return argv and environment; ``env`` is the console's own environment."""

    def said(self, output: str) -> Said:
        """Return what its messages tell of the end of a job: of ranks, and of the whole."""
