"""`spbench run` through the real srun, on two nodes of a Slurm of our own.

The console does not see the ranks, as on a login node: what ends them is srun, or the end of their
connection.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from spbench.engine.processes import find_processes
from support.cluster.isolated_controller import read_collector_hosts, signal_controller
from support.cluster.slurm import Slurm
from support.paths import ROOT, TEST_SUITES
from support.program_suites import build_world, write_world_suite
from support.runs import RunProcess, RunResult

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(90),
    pytest.mark.usefixtures("console_apart"),
]

FAULTS = str(TEST_SUITES / "faults.yaml")
LONG = str(TEST_SUITES / "long.yaml")


@pytest.fixture
def start(slurm: Slurm, mpich: Path, tmp_path: Path):
    """Starts a suite through srun, with the ranks' MPICH in a venv of its own."""

    def start(suite: str, *words: str) -> RunProcess:
        python = f"launch.python={mpich / 'bin/python'}"
        workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
        words = ("--launcher", "srun", "--set", python, "--set", workers, *words)
        return RunProcess(suite, *words, home=tmp_path / "home")

    return start


def assert_nothing_left(slurm: Slurm, ended: RunResult) -> None:
    """Within some seconds no process of the run is left, nor a job in Slurm's queue."""
    (run,) = (ended.home / "runs").iterdir()
    deadline = time.monotonic() + 5
    while (left := find_processes(run.name)) or slurm.list_jobs():
        assert time.monotonic() < deadline, (left, slurm.list_jobs())
        time.sleep(0.1)


def on_two_nodes(slurm: Slurm) -> tuple[str, str]:
    return "--hosts", ",".join(slurm.nodes[:2])


def test_a_run_over_two_nodes_passes(slurm: Slurm, start) -> None:
    ended = start(FAULTS, *on_two_nodes(slurm)).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"passed"}
    (job,) = [event for event in ended.events if event["event"] == "job_start"]
    assert job["launcher"] == "srun"
    assert "--nodelist=n1,n2" in job["argv"]
    assert_nothing_left(slurm, ended)
    ended.assert_no_event_missing()


def test_a_program_of_its_own_is_an_mpi_process_on_two_nodes(
    slurm: Slurm, start, mpich: Path, tmp_path: Path
) -> None:
    world = build_world(mpich / "bin/mpicc", tmp_path)
    ended = start(write_world_suite(world, tmp_path), *on_two_nodes(slurm)).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    case = ended.case("world")
    assert (case["launch"]["launcher"], case["metrics"]["sum"]["value"]) == ("srun", 1)
    assert_nothing_left(slurm, ended)


def test_where_slurm_chooses_the_nodes_ranks_are_told_more_than_loopback(
    slurm: Slurm, start
) -> None:
    # on one node, one start in ten of PyPI's MPICH 5.0.2 fails under PMI-2
    running = start(LONG, "--set", "launch.ranks_per_host=1").wait_for_timing()
    assert "127.0.0.1" not in read_collector_hosts(running.find_pid(1))
    signal_controller(running, signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended.stdout + ended.stderr
    assert_nothing_left(slurm, ended)


def test_a_killed_rank_is_named_and_the_next_case_runs(slurm: Slurm, start) -> None:
    ended = start(LONG, *on_two_nodes(slurm)).check_rank_kill(1, "")
    assert_nothing_left(slurm, ended)


def test_ctrl_c_ends_the_ranks_and_the_slurm_job(slurm: Slurm, start) -> None:
    running = start(LONG, *on_two_nodes(slurm)).wait_for_timing()
    assert slurm.list_jobs()
    signal_controller(running, signal.SIGINT)
    ended = running.check_cancelled()
    assert_nothing_left(slurm, ended)
    ended.assert_no_event_missing()
