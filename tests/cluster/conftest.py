"""Fixtures of the tests that need hosts, Slurm or Hydra."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import runs as running
from support.cluster.hosts import HostNetwork, start_hosts
from support.cluster.isolated_controller import write_isolated_spbench
from support.cluster.requirements import MissingRequirementError
from support.cluster.slurm import Slurm, find_running_slurm, start_private_slurm


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    """Three hosts on a bridge."""
    try:
        with start_hosts(tmp_path_factory.mktemp("hosts"), 3) as network:
            yield network
    except MissingRequirementError as error:
        pytest.skip(f"no test hosts on this machine: {error}")


@pytest.fixture
def isolated_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start controllers that do not see their ranks in the process table."""
    # A launcher names its folder by its pid, and pids repeat in each process namespace. The sockets
    # in the folder need a short path.
    with tempfile.TemporaryDirectory(prefix="sp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(running, "SPBENCH", str(write_isolated_spbench(tmp_path)))
        yield


@pytest.fixture(scope="session")
def mpich() -> Path:
    """A venv with PyPI's mpich and mpi4py."""
    return find_venv("SPBENCH_TEST_MPICH_VENV", "mpich")


@pytest.fixture(scope="session")
def intelmpi() -> Path:
    """A venv with PyPI's impi-rt and mpi4py."""
    return find_venv("SPBENCH_TEST_INTELMPI_VENV", "impi-rt")


def find_venv(variable: str, package: str) -> Path:
    """Return the venv that an environment variable names, or skip the test."""
    venv = Path(os.environ.get(variable, "/nowhere"))
    if not (venv / "bin/mpiexec").exists():
        pytest.skip(f"{variable} names no venv with {package} and mpi4py")
    return venv


@pytest.fixture(scope="session")
def any_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The Slurm of this machine, or else a private one."""
    running_slurm = find_running_slurm()
    if running_slurm is not None:
        yield running_slurm
        return
    try:
        with start_private_slurm(tmp_path_factory.mktemp("slurm")) as private_slurm:
            yield private_slurm
    except MissingRequirementError as error:
        pytest.skip(f"no Slurm on this machine: {error}")


@pytest.fixture
def slurm(any_slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A Slurm with two nodes, to which the environment of the test points."""
    if any_slurm.conf is not None:
        monkeypatch.setenv("SLURM_CONF", str(any_slurm.conf))
    return any_slurm
