"""`spbench run` with the real Hydra; the MPICH of the ranks is in a separate venv."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from support.cluster.hosts import HostNetwork
from support.paths import ROOT, TEST_SUITES
from support.program_suites import build_world, write_world_suite
from support.runs import RunProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]

FAULTS = str(TEST_SUITES / "faults.yaml")
LONG = str(TEST_SUITES / "long.yaml")
HOST = socket.gethostname()


@pytest.fixture
def start(mpich: Path, tmp_path: Path):
    """Return a function that starts a suite with ranks in the venv with MPICH."""

    def start(suite: str, *arguments: str, env: dict[str, str] | None = None) -> RunProcess:
        python = f"launch.python={mpich / 'bin/python'}"
        workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
        settings = ("--set", python, "--set", workers, "--set", "launch.bind=none")
        return RunProcess(suite, *settings, *arguments, home=tmp_path / "home", env=env)

    return start


@pytest.fixture
def start_on_hosts(start, hosts: HostNetwork, isolated_controller: None, tmp_path: Path):
    """Return a function that starts a suite on the test hosts.

    UCX_TLS is set because the hosts share the memory of this machine, which UCX would use.
    """

    def start_on_hosts(suite: str, *launcher_args: str) -> RunProcess:
        (tmp_path / "hostfile").write_text(hosts.render_hostfile())
        options = ["--hostfile", str(tmp_path / "hostfile"), "--set", "launch.env.UCX_TLS=tcp,self"]
        if launcher_args:
            options += ["--set", f"launch.args=[{', '.join(launcher_args)}]"]
        return start(suite, *options, env={"PATH": f"{hosts.bin}:{os.environ['PATH']}"})

    return start_on_hosts


def test_auto_selects_hydra_for_mpich(start) -> None:
    result = start(FAULTS).wait()
    assert result.code == 0, result.stdout + result.stderr
    assert {case["launch"]["launcher"] for case in result.report["cases"]} == {"hydra"}
    assert set(result.statuses.values()) == {"passed"}
    (job,) = [event for event in result.events if event["event"] == "job_start"]
    assert job["version"].startswith("Hydra ")
    result.assert_no_process_left()
    result.assert_no_event_missing()


def test_ranks_of_a_program_are_mpi_processes(start, mpich: Path, tmp_path: Path) -> None:
    world = build_world(mpich / "bin/mpicc", tmp_path)
    result = start(write_world_suite(world, tmp_path, np=3)).wait()
    assert result.code == 0, result.stdout + result.stderr
    case = result.case("world")
    assert (case["launch"]["launcher"], case["metrics"]["sum"]["value"]) == ("hydra", 3)
    result.assert_no_process_left()


def test_killed_rank_is_named_and_the_next_case_runs(start) -> None:
    start(LONG).check_rank_kill(1, HOST).assert_no_process_left()


def test_ctrl_c_ends_ranks_in_another_session(start) -> None:
    run = start(LONG).wait_for_timing()
    assert os.getsid(run.find_pid(1)) not in (os.getsid(run.process.pid), os.getsid(0))
    run.interrupt()
    result = run.check_cancelled()
    result.assert_no_process_left()
    result.assert_no_event_missing()


def test_run_on_hosts_passes_with_a_reachable_address(hosts: HostNetwork, start_on_hosts) -> None:
    result = start_on_hosts(FAULTS, "-localhost", hosts.address).wait()
    assert result.code == 0, result.stdout + result.stderr
    names = [rank["host"] for rank in result.case("first")["ranks"]]
    assert names == [host.name for host in hosts.hosts[:2]]


@pytest.mark.long
def test_explains_hosts_that_cannot_reach_mpiexec(start_on_hosts) -> None:
    result = start_on_hosts(FAULTS).wait()
    assert result.code == 4, result.stdout + result.stderr
    assert f"a host cannot reach mpiexec at {HOST}" in result.case("first")["reason"]
    assert "-localhost" in result.case("first")["reason"]
