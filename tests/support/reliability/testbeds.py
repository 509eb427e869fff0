"""Testbeds for faults: a launcher, and the hosts on which it starts ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import runs as running
from support.cluster.hosts import HostNetwork, start_hosts
from support.cluster.isolated_controller import find_controller_pid, write_isolated_spbench
from support.cluster.requirements import MissingRequirementError
from support.cluster.slurm import Slurm, start_private_slurm
from support.paths import ROOT, STANDINS
from support.runs import RunProcess


@dataclass(frozen=True)
class FaultTestbed:
    """A launcher with hosts.

    Attributes:
        name: The name in the table of faults.
        arguments: Arguments of ``spbench run``.
        env: Environment variables of the controller.
        spbench: The command that is started.
        hosts: Hosts with links that can be cut; None if all ranks are on this machine.
        slurm: The Slurm that starts the ranks, if any.
    """

    name: str
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    spbench: str = running.SPBENCH
    hosts: HostNetwork | None = None
    slurm: Slurm | None = None

    @property
    def isolated(self) -> bool:
        """Whether the controller runs in its own process namespace."""
        return self.spbench != running.SPBENCH

    def find_controller_pid(self, run: RunProcess) -> int:
        """Return the pid of the controller of a run."""
        return find_controller_pid(run) if self.isolated else run.process.pid


TESTBED_NAMES = ("openmpi", "hydra", "mpirun_rsh", "srun", "openmpi-hosts")


class FaultTestbeds:
    """Starts each testbed on its first use, and ends all of them at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._testbeds: dict[str, FaultTestbed | str] = {}

    def __enter__(self) -> FaultTestbeds:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def get(self, name: str) -> FaultTestbed | str:
        """Return a testbed, or the reason why this machine cannot provide it."""
        if name not in self._testbeds:
            try:
                self._testbeds[name] = self._stack.enter_context(_FACTORIES[name](self._folder))
            except MissingRequirementError as error:
                self._testbeds[name] = str(error)
        return self._testbeds[name]


@contextmanager
def _openmpi(folder: Path) -> Iterator[FaultTestbed]:
    yield FaultTestbed("openmpi", ("--launcher", "openmpi"))


@contextmanager
def _hydra(folder: Path) -> Iterator[FaultTestbed]:
    yield FaultTestbed("hydra", ("--launcher", "hydra", *_build_mpich_arguments()))


@contextmanager
def _mpirun_rsh(folder: Path) -> Iterator[FaultTestbed]:
    path = f"{STANDINS}:{os.environ['PATH']}"
    yield FaultTestbed("mpirun_rsh", ("--launcher", "mpirun_rsh"), (("PATH", path),))


@contextmanager
def _srun(folder: Path) -> Iterator[FaultTestbed]:
    (folder / "slurm").mkdir()
    with start_private_slurm(folder / "slurm") as slurm:
        hosts = ",".join(slurm.nodes[:2])
        arguments = ("--launcher", "srun", *_build_mpich_arguments(), "--hosts", hosts)
        env = (("SLURM_CONF", str(slurm.conf)),)
        spbench = str(write_isolated_spbench(folder / "slurm"))
        yield FaultTestbed("srun", arguments, env, spbench, slurm=slurm)


@contextmanager
def _openmpi_hosts(folder: Path) -> Iterator[FaultTestbed]:
    (folder / "hosts").mkdir()
    with start_hosts(folder / "hosts", 2) as hosts:
        hostfile = folder / "hosts" / "hostfile"
        hostfile.write_text(hosts.render_hostfile())
        env = (("PATH", f"{hosts.bin}:{os.environ['PATH']}"),)
        options = ("--hostfile", str(hostfile), "--set", "launch.bind=none")
        spbench = str(write_isolated_spbench(folder / "hosts"))
        yield FaultTestbed(
            "openmpi-hosts", ("--launcher", "openmpi", *options), env, spbench, hosts
        )


_FACTORIES = {
    "openmpi": _openmpi,
    "hydra": _hydra,
    "mpirun_rsh": _mpirun_rsh,
    "srun": _srun,
    "openmpi-hosts": _openmpi_hosts,
}


def _build_mpich_arguments() -> Sequence[str]:
    """Return the arguments that run ranks in the venv with MPICH."""
    venv = Path(os.environ.get("SPBENCH_TEST_MPICH_VENV", "/nowhere"))
    if not (venv / "bin/mpiexec").exists():
        raise MissingRequirementError("SPBENCH_TEST_MPICH_VENV names no venv with mpich and mpi4py")
    workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
    return ("--set", f"launch.python={venv / 'bin/python'}", "--set", workers)
