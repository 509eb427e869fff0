"""Open MPI's files in shared memory: jobs share none, killed ranks leave none."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from support.paths import STANDINS, TEST_SUITES
from support.runs import RunProcess, find_program, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LONG = str(TEST_SUITES / "long.yaml")
MIXED = str(TEST_SUITES / "mixed.yaml")


def find_segments(pid: int) -> set[Path]:
    """Return the segments of Open MPI that a process has mapped."""
    paths = re.findall(r"/dev/shm/\S*sm_segment\S*", Path(f"/proc/{pid}/maps").read_text())
    return set(map(Path, paths))


def read_namespace(pid: int) -> str:
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(entry[15:] for entry in environ if entry.startswith(b"PMIX_NAMESPACE=")).decode()


@pytest.fixture
def long_run(tmp_path: Path) -> RunProcess:
    return RunProcess(LONG, home=tmp_path / "long").wait_for_timing()


def test_jobs_with_the_same_number_share_no_segment(long_run: RunProcess, tmp_path: Path) -> None:
    namespace = read_namespace(long_run.find_pid(0))
    prterun = find_program("prterun")
    assert prterun is not None
    env = {
        "OMPI_PRTERUN": str(STANDINS / "prterun"),
        "SPBENCH_TEST_PRTERUN": prterun,
        "SPBENCH_TEST_LIKE": namespace,
    }
    other_result = run(MIXED, "-k", "narrow", home=tmp_path / "other", env=env)
    assert other_result.code == 0, other_result.stderr
    assert long_run.process.poll() is None
    assert len(find_segments(long_run.find_pid(0))) == 2
    long_run.interrupt()
    long_run.check_cancelled()


def test_segments_of_a_killed_rank_are_gone_after_the_next_job(long_run: RunProcess) -> None:
    segments = find_segments(long_run.find_pid(0))
    assert segments
    os.kill(long_run.find_pid(0), signal.SIGKILL)
    result = long_run.wait()
    assert result.statuses == {"long": "error", "after": "passed"}
    assert not [path for path in segments if path.parent.exists()]
