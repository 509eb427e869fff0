"""`spbench run` with the real srun on two nodes.

The controller does not see the ranks, like on a login node. They end with srun or with their
connection.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from spbench.engine.processes import find_processes
from support.cluster.isolated_controller import signal_controller
from support.cluster.slurm import Slurm
from support.paths import ROOT, TEST_SUITES
from support.processes import read_collector_hosts
from support.program_suites import build_world, write_world_suite
from support.runs import RunProcess, RunResult

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(90),
    pytest.mark.usefixtures("isolated_controller"),
]

FAULTS = str(TEST_SUITES / "faults.yaml")
LONG = str(TEST_SUITES / "long.yaml")


@pytest.fixture
def start(slurm: Slurm, mpich: Path, tmp_path: Path):
    """Return a function that starts a suite with srun and an MPICH in a separate venv."""

    def start(suite: str, *arguments: str) -> RunProcess:
        python = f"launch.python={mpich / 'bin/python'}"
        workers = f"launch.env.PYTHONPATH={ROOT / 'core'}:{ROOT / 'workers'}"
        options = ("--launcher", "srun", "--set", python, "--set", workers)
        return RunProcess(suite, *options, *arguments, home=tmp_path / "home")

    return start


def assert_nothing_left(slurm: Slurm, result: RunResult) -> None:
    """Check that the processes of the run and its Slurm job end within 5 s."""
    (folder,) = (result.home / "runs").iterdir()
    deadline = time.monotonic() + 5
    while (pids := find_processes(folder.name)) or slurm.list_jobs():
        assert time.monotonic() < deadline, (pids, slurm.list_jobs())
        time.sleep(0.1)


def select_two_nodes(slurm: Slurm) -> tuple[str, str]:
    return "--hosts", ",".join(slurm.nodes[:2])


def test_run_on_two_nodes_passes(slurm: Slurm, start) -> None:
    result = start(FAULTS, *select_two_nodes(slurm)).wait()
    assert result.code == 0, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"passed"}
    (job,) = [event for event in result.events if event["event"] == "job_start"]
    assert job["launcher"] == "srun"
    assert "--nodelist=n1,n2" in job["argv"]
    assert_nothing_left(slurm, result)
    result.assert_no_event_missing()


def test_ranks_of_a_program_are_mpi_processes_on_two_nodes(
    slurm: Slurm, start, mpich: Path, tmp_path: Path
) -> None:
    world = build_world(mpich / "bin/mpicc", tmp_path)
    result = start(write_world_suite(world, tmp_path), *select_two_nodes(slurm)).wait()
    assert result.code == 0, result.stdout + result.stderr
    case = result.case("world")
    assert (case["launch"]["launcher"], case["metrics"]["sum"]["value"]) == ("srun", 1)
    assert_nothing_left(slurm, result)


def test_ranks_get_more_than_loopback_if_slurm_selects_nodes(slurm: Slurm, start) -> None:
    # on one node, one of ten starts of PyPI's MPICH 5.0.2 fails with PMI-2
    run = start(LONG, "--set", "launch.ranks_per_host=1").wait_for_timing()
    assert "127.0.0.1" not in read_collector_hosts(run.find_pid(1))
    signal_controller(run, signal.SIGINT)
    result = run.wait()
    assert result.code == 130, result.stdout + result.stderr
    assert_nothing_left(slurm, result)


def test_killed_rank_is_named_and_the_next_case_runs(slurm: Slurm, start) -> None:
    result = start(LONG, *select_two_nodes(slurm)).check_rank_kill(1, "")
    assert_nothing_left(slurm, result)


def test_ctrl_c_ends_the_ranks_and_the_slurm_job(slurm: Slurm, start) -> None:
    run = start(LONG, *select_two_nodes(slurm)).wait_for_timing()
    assert slurm.list_jobs()
    signal_controller(run, signal.SIGINT)
    result = run.check_cancelled()
    assert_nothing_left(slurm, result)
    result.assert_no_event_missing()
