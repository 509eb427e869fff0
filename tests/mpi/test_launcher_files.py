"""The files of mpirun: those of a killed one are removed, and do not disturb a later one."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from support.paths import TEST_SUITES
from support.runs import RunProcess, find_program, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LONG = str(TEST_SUITES / "long.yaml")
MIXED = str(TEST_SUITES / "mixed.yaml")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return the TMPDIR of a run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_files_of_a_killed_mpirun_with_the_same_pid(tmp_path: Path, temporary: Path) -> None:
    prterun = find_program("prterun")
    assert prterun is not None
    after_killed = tmp_path / "prterun"
    after_killed.write_text(
        "#!/bin/sh\n"
        'mkdir "$TMPDIR/ompi.$$" && touch "$TMPDIR/ompi.$$/pmix.$(uname -n).tool.$$"\n'
        f'exec {shlex.quote(prterun)} "$@"\n'
    )
    after_killed.chmod(0o755)
    env = {"OMPI_PRTERUN": str(after_killed), "TMPDIR": str(temporary)}
    ended = run(MIXED, "-k", "narrow", home=tmp_path / "home", env=env)
    assert list(temporary.glob("ompi.*/pmix.*"))
    assert ended.code == 0, ended.stderr


def test_files_of_a_killed_mpirun_are_removed(tmp_path: Path, temporary: Path) -> None:
    running = RunProcess(
        LONG, home=tmp_path / "home", env={"TMPDIR": str(temporary)}
    ).wait_for_timing()
    assert list(temporary.glob("*/ompi.*"))
    rank = Path(f"/proc/{running.find_pid(0)}/stat").read_text()
    mpirun = int(rank.rpartition(")")[2].split()[1])
    os.kill(mpirun, signal.SIGKILL)
    ended = running.wait()
    assert ended.statuses["long"] == "error"
    assert not list(temporary.glob("*/ompi.*"))
