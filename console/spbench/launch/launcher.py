"""The interface of a launcher module, and the job that it is given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from spbench.suites.settings import LaunchSettings

# a launcher without a hostfile spreads its ranks over the allocation that one of these shows
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID")
# other batch systems, and files or lists of hosts that a launcher reads without being told:
# PE_HOSTFILE, HYDRA_HOST_FILE, COBALT_NODEFILE, OMPI_MCA_orte_default_hostfile, ..._dash_host
_HOSTS_BY_NAME = re.compile(r"^FLUX_|(HOST|NODE)_?FILE|NODELIST|DASH_HOST|^LSB_", re.IGNORECASE)


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
    """A launcher's process: ``argv`` and its whole environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Launcher(Protocol):
    """One launcher. Each module of `launchers` has one as ``LAUNCHER``."""

    name: str
    libraries: frozenset[str]
    """MPI libraries whose ranks it starts: openmpi, mpich, intelmpi, mvapich2, mvapich."""
    shows_binding: str
    """The words of a suite's launch settings that make it print how it binds ranks."""

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

    def explain(self, stderr: str) -> str | None:
        """Return what its messages say of a rank's end: ``rank 2 was killed by signal 9``."""
