"""`spbench run` with a stand-in for mpirun_rsh; ranks have blocked signals."""

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
    """Return a function that starts a suite with the stand-in first on PATH."""

    def start(suite: str, *arguments: str, **env: str) -> RunProcess:
        path = f"{STANDINS}:{os.environ['PATH']}"
        options = ("--launcher", "mpirun_rsh", *arguments)
        return RunProcess(suite, *options, home=tmp_path / "home", env={"PATH": path} | env)

    return start


def build_path(program: str, folder: Path, script: str) -> str:
    """Return a PATH that has a shell script with the name of a program."""
    folder.mkdir()
    path = folder / program
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return f"{folder}:{STANDINS}:{os.environ['PATH']}"


def test_run_with_blocked_signals_passes(start) -> None:
    result = start(FAULTS).wait()
    assert result.code == 0, result.stdout + result.stderr
    assert set(result.statuses.values()) == {"passed"}
    (job,) = [event for event in result.events if event["event"] == "job_start"]
    assert job["version"] == "mvapich2-2.3.7-standin"
    assert job["argv"][1:4] == ["--export-all", "-np", "2"]
    assert job["hostfile"] == f"{HOST}\n"
    assert not any("SPBENCH_TOKEN" in word for word in job["argv"])
    result.assert_no_process_left()
    result.assert_no_event_missing()


@pytest.mark.long
def test_killed_rank_is_named_and_the_next_case_runs(start) -> None:
    start(LONG).check_rank_kill(1, HOST).assert_no_process_left()


@pytest.mark.long
def test_killed_rank_is_named_before_consequences(start) -> None:
    result = start(LONG, STANDIN_LATE="0.7").check_rank_kill(1, HOST)
    reason = result.case("long")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    cause, _, consequence = reason.partition("; as a consequence ")
    assert cause.endswith("was killed by signal 9 (SIGKILL)")
    assert f"rank 0 on {HOST}, " in consequence
    assert "Exception: MPI_ERR_PROC_FAILED" in consequence
    assert result.case("long")["traceback"] is None


@pytest.mark.long
def test_rank_that_ends_before_it_connects_is_named(start) -> None:
    line = '[ "$MV2_COMM_WORLD_RANK" != 1 ] || exit 7'
    result = start(FAULTS, "--set", f"launch.setup=['{line}']").wait()
    assert result.code == 4, result.stdout + result.stderr
    reason = result.case("first")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    assert "exited with status 7 before it connected" in reason
    result.assert_no_process_left()


@pytest.mark.long
def test_ended_rank_is_named_if_its_launcher_hangs(start, tmp_path: Path) -> None:
    message = (
        f"[{HOST}:mpispawn_0][child_handler] MPI process (rank: 1, pid: 7) exited with status 7"
    )
    version = '[ "$1" = -v ] && { echo Version: mvapich2-2.3.7; exit; }'
    path = build_path(
        "mpirun_rsh", tmp_path / "bin", f"{version}\necho '{message}' >&2\nsleep 60\n"
    )
    result = start(FAULTS, "--set", "launch.start_timeout=2", PATH=path).wait()
    assert result.code == 4, result.stdout + result.stderr
    reason = result.case("first")["reason"]
    assert reason.startswith(f"rank 1 on {HOST}, ")
    assert "exited with status 7 before it connected" in reason
    result.assert_no_process_left()


@pytest.mark.long
def test_time_limit_of_the_launcher_is_the_cause(start) -> None:
    result = start(LONG, MPIEXEC_TIMEOUT="5").wait()
    assert result.code == 4, result.stdout + result.stderr
    reason = result.case("long")["reason"]
    assert reason.startswith("mpirun_rsh ended the job after 5 s, its MPIEXEC_TIMEOUT")
    assert "KeyboardInterrupt" in reason
    result.assert_no_process_left()


def test_ssh_alias_is_rejected_before_the_launch(start, tmp_path: Path) -> None:
    path = build_path("ssh", tmp_path / "bin", "exit 0\n")
    result = start(FAULTS, "--hosts", "alias.invalid:2", PATH=path).wait()
    assert result.code == 3, result.stdout + result.stderr
    assert "mpirun_rsh cannot reach alias.invalid: the name is an alias of ssh's" in result.stderr
    assert result.report["cases"] == []


@pytest.mark.long
def test_host_without_mvapich2_is_named(start, tmp_path: Path) -> None:
    path = build_path(
        "ssh", tmp_path / "bin", 'for word; do last=$word; done\nexec sh -c "$last"\n'
    )
    result = start(FAULTS, "--hosts", "192.0.2.7:2", PATH=path).wait()
    assert result.code == 4, result.stdout + result.stderr
    reason = result.case("first")["reason"]
    assert reason.startswith(f"host 192.0.2.7: it has no {STANDINS}/mpispawn; the launcher ended")
    assert "0 of 1 hosts started" in reason


def test_ctrl_c_leaves_no_process_behind(start) -> None:
    run = start(LONG).wait_for_timing()
    run.interrupt()
    result = run.check_cancelled()
    result.assert_no_process_left()
    result.assert_no_event_missing()


@pytest.mark.long
def test_ranks_unblock_signals_at_their_start(start) -> None:
    run = start(LONG).wait_for_timing()
    for rank in (0, 1):
        status = Path(f"/proc/{run.find_pid(rank)}/status").read_text()
        assert "\nSigBlk:\t0000000000000000\n" in status
    run.interrupt()
    assert run.wait().code == 130
