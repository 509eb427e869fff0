"""`spbench run` through the mpirun_rsh stand-in, whose ranks start with blocked signals."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from support.paths import STANDINS, TEST_SUITES
from support.runs import RunProcess

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(90)]

FAULTS = str(TEST_SUITES / "faults.yaml")
LONG = str(TEST_SUITES / "long.yaml")
HOST = socket.gethostname()


@pytest.fixture
def start(tmp_path: Path):
    """Starts a suite with the stand-in first on PATH."""

    def start(suite: str, *words: str, **env: str) -> RunProcess:
        path = f"{STANDINS}:{os.environ['PATH']}"
        words = ("--launcher", "mpirun_rsh", *words)
        return RunProcess(suite, *words, home=tmp_path / "home", env={"PATH": path} | env)

    return start


def path_with(program: str, folder: Path, script: str) -> str:
    """Return a PATH on which a program is a script of the shell."""
    folder.mkdir()
    path = folder / program
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return f"{folder}:{STANDINS}:{os.environ['PATH']}"


def test_a_run_passes(start) -> None:
    ended = start(FAULTS).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"passed"}
    (job,) = [event for event in ended.events if event["event"] == "job_start"]
    assert job["version"] == "mvapich2-2.3.7-standin"
    assert job["argv"][1:4] == ["--export-all", "-np", "2"]
    assert job["hostfile"] == f"{HOST}\n"
    assert not any("SPBENCH_TOKEN" in word for word in job["argv"])
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


@pytest.mark.long
def test_a_killed_rank_is_named_and_the_next_case_runs(start) -> None:
    start(LONG).check_rank_kill(1, HOST).assert_no_process_left()


@pytest.mark.long
def test_a_killed_rank_is_named_though_the_errors_of_the_others_come_first(start) -> None:
    ended = start(LONG, STANDIN_LATE="0.7").check_rank_kill(1, HOST)
    reason = ended.case("long")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    cause, _, consequence = reason.partition("; as a consequence ")
    assert cause.endswith("was killed by signal 9 (SIGKILL)")
    assert f"rank 0 on {HOST}, " in consequence
    assert "Exception: MPI_ERR_PROC_FAILED" in consequence
    assert ended.case("long")["traceback"] is None


@pytest.mark.long
def test_a_rank_that_ends_before_it_connects_is_named_and_not_its_victim(start) -> None:
    line = '[ "$MV2_COMM_WORLD_RANK" != 1 ] || exit 7'
    ended = start(FAULTS, "--set", f"launch.setup=['{line}']").wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    reason = ended.case("first")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    assert "exited with status 7 before it connected" in reason
    ended.assert_no_process_left()


@pytest.mark.long
def test_a_rank_that_ended_is_named_where_its_launcher_hangs(start, tmp_path: Path) -> None:
    words = f"[{HOST}:mpispawn_0][child_handler] MPI process (rank: 1, pid: 7) exited with status 7"
    version = '[ "$1" = -v ] && { echo Version: mvapich2-2.3.7; exit; }'
    path = path_with("mpirun_rsh", tmp_path / "bin", f"{version}\necho '{words}' >&2\nsleep 60\n")
    ended = start(FAULTS, "--set", "launch.start_timeout=2", PATH=path).wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    reason = ended.case("first")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    assert "exited with status 7 before it connected" in reason
    ended.assert_no_process_left()


@pytest.mark.long
def test_the_launchers_own_time_limit_is_the_cause_and_not_its_signal(start) -> None:
    ended = start(LONG, MPIEXEC_TIMEOUT="5").wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    reason = ended.case("long")["reason"]
    assert reason.startswith("mpirun_rsh ended the job after 5 s, its MPIEXEC_TIMEOUT")
    assert "KeyboardInterrupt" in reason
    ended.assert_no_process_left()


def test_a_name_that_ssh_alone_knows_is_refused_before_the_launch(start, tmp_path: Path) -> None:
    path = path_with("ssh", tmp_path / "bin", "exit 0\n")
    ended = start(FAULTS, "--hosts", "alias.invalid:2", PATH=path).wait()
    assert ended.code == 3, ended.stdout + ended.stderr
    assert "mpirun_rsh cannot reach alias.invalid: the name is an alias of ssh's" in ended.stderr
    assert ended.report["cases"] == []


@pytest.mark.long
def test_a_host_without_mvapich2_is_named_with_what_it_lacks(start, tmp_path: Path) -> None:
    path = path_with("ssh", tmp_path / "bin", 'for word; do last=$word; done\nexec sh -c "$last"\n')
    ended = start(FAULTS, "--hosts", "192.0.2.7:2", PATH=path).wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    reason = ended.case("first")["reason"]
    assert reason.startswith(f"host 192.0.2.7: it has no {STANDINS}/mpispawn; the launcher ended")
    assert "0 of 1 hosts started" in reason


def test_ctrl_c_leaves_nothing_behind(start) -> None:
    running = start(LONG).wait_for_timing()
    running.interrupt()
    ended = running.check_cancelled()
    ended.assert_no_process_left()
    ended.assert_no_event_missing()


@pytest.mark.long
def test_ranks_unblock_the_signals_that_they_start_with(start) -> None:
    running = start(LONG).wait_for_timing()
    for rank in (0, 1):
        status = Path(f"/proc/{running.find_pid(rank)}/status").read_text()
        assert "\nSigBlk:\t0000000000000000\n" in status
    running.interrupt()
    assert running.wait().code == 130
