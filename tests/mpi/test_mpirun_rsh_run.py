"""`spbench run` through the mpirun_rsh stand-in, whose ranks start with blocked signals."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from places import DATA, STANDINS
from running import Running

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(90)]

FAULTS = str(DATA / "faults.yaml")
LONG = str(DATA / "long.yaml")
HOST = socket.gethostname()


@pytest.fixture
def start(tmp_path: Path):
    """Starts a suite with the stand-in first on PATH."""

    def start(suite: str, *words: str) -> Running:
        path = f"{STANDINS}:{os.environ['PATH']}"
        words = ("--launcher", "mpirun_rsh", *words)
        return Running(suite, *words, home=tmp_path / "home", env={"PATH": path})

    return start


def test_a_run_passes(start) -> None:
    ended = start(FAULTS).end()
    assert ended.code == 0, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"passed"}
    (job,) = [event for event in ended.events if event["event"] == "job_start"]
    assert job["version"] == "mvapich2-2.3.7-standin"
    assert job["argv"][1:4] == ["--export-all", "-np", "2"]
    assert job["hostfile"] == f"{HOST}\n"
    assert not any("SPBENCH_TOKEN" in word for word in job["argv"])
    ended.assert_no_process_left()
    ended.assert_events_whole()


def test_a_killed_rank_is_named_and_the_next_case_runs(start) -> None:
    start(LONG).killed(1, HOST).assert_no_process_left()


def test_ctrl_c_leaves_nothing_behind(start) -> None:
    running = start(LONG).timing()
    running.interrupt()
    ended = running.cancelled()
    ended.assert_no_process_left()
    ended.assert_events_whole()


def test_ranks_unblock_the_signals_that_they_start_with(start) -> None:
    running = start(LONG).timing()
    for rank in (0, 1):
        status = Path(f"/proc/{running.pid_of(rank)}/status").read_text()
        assert "\nSigBlk:\t0000000000000000\n" in status
    running.interrupt()
    assert running.end().code == 130
