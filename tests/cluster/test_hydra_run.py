"""`spbench run` through the real Hydra, with the ranks' MPICH in a venv of its own."""

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
    """Starts a suite whose ranks run in the venv, which knows the workers by their folder."""

    def start(suite: str, *words: str, env: dict[str, str] | None = None) -> RunProcess:
        python = f"launch.python={mpich / 'bin/python'}"
        workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
        sets = ("--set", python, "--set", workers, "--set", "launch.bind=none")
        return RunProcess(suite, *sets, *words, home=tmp_path / "home", env=env)

    return start


@pytest.fixture
def start_over(start, hosts: HostNetwork, console_apart: None, tmp_path: Path):
    """Starts a suite over the test hosts. Else UCX would talk over the memory that they share."""

    def start_over(suite: str, *args: str) -> RunProcess:
        (tmp_path / "hostfile").write_text(hosts.render_hostfile())
        words = ["--hostfile", str(tmp_path / "hostfile"), "--set", "launch.env.UCX_TLS=tcp,self"]
        if args:
            words += ["--set", f"launch.args=[{', '.join(args)}]"]
        return start(suite, *words, env={"PATH": f"{hosts.bin}:{os.environ['PATH']}"})

    return start_over


def test_auto_takes_hydra_for_mpich_and_the_run_passes(start) -> None:
    ended = start(FAULTS).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    assert {case["launch"]["launcher"] for case in ended.report["cases"]} == {"hydra"}
    assert set(ended.statuses.values()) == {"passed"}
    (job,) = [event for event in ended.events if event["event"] == "job_start"]
    assert job["version"].startswith("Hydra ")
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


def test_a_program_of_its_own_is_an_mpi_process(start, mpich: Path, tmp_path: Path) -> None:
    world = build_world(mpich / "bin/mpicc", tmp_path)
    ended = start(write_world_suite(world, tmp_path, np=3)).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    case = ended.case("world")
    assert (case["launch"]["launcher"], case["metrics"]["sum"]["value"]) == ("hydra", 3)
    ended.assert_no_process_left()


def test_a_killed_rank_is_named_and_the_next_case_runs(start) -> None:
    start(LONG).check_rank_kill(1, HOST).assert_no_process_left()


def test_ctrl_c_leaves_no_rank_in_a_session_of_its_own(start) -> None:
    running = start(LONG).wait_for_timing()
    assert os.getsid(running.find_pid(1)) not in (os.getsid(running.process.pid), os.getsid(0))
    running.interrupt()
    ended = running.check_cancelled()
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


def test_a_run_over_hosts_passes_with_an_address_that_they_reach(
    hosts: HostNetwork, start_over
) -> None:
    ended = start_over(FAULTS, "-localhost", hosts.address).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    names = [rank["host"] for rank in ended.case("first")["ranks"]]
    assert names == [host.name for host in hosts.hosts[:2]]


@pytest.mark.long
def test_hosts_that_cannot_reach_mpiexec_are_explained(start_over) -> None:
    ended = start_over(FAULTS).wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    assert f"a host cannot reach mpiexec at {HOST}" in ended.case("first")["reason"]
    assert "-localhost" in ended.case("first")["reason"]
