"""Temporary files of a killed mpirun are removed and do not disturb others."""

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
    """The TMPDIR of a run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_files_of_a_killed_mpirun_with_the_same_pid_are_harmless(
    tmp_path: Path, temporary: Path
) -> None:
    prterun = find_program("prterun")
    assert prterun is not None
    prterun_script = tmp_path / "prterun"
    prterun_script.write_text(
        "#!/bin/sh\n"
        'mkdir "$TMPDIR/ompi.$$" && touch "$TMPDIR/ompi.$$/pmix.$(uname -n).tool.$$"\n'
        f'exec {shlex.quote(prterun)} "$@"\n'
    )
    prterun_script.chmod(0o755)
    env = {"OMPI_PRTERUN": str(prterun_script), "TMPDIR": str(temporary)}
    result = run(MIXED, "-k", "narrow", home=tmp_path / "home", env=env)
    assert list(temporary.glob("ompi.*/pmix.*"))
    assert result.code == 0, result.stderr


def test_files_of_a_killed_mpirun_are_removed(tmp_path: Path, temporary: Path) -> None:
    run_process = RunProcess(
        LONG, home=tmp_path / "home", env={"TMPDIR": str(temporary)}
    ).wait_for_timing()
    assert list(temporary.glob("*/ompi.*"))
    stat = Path(f"/proc/{run_process.find_pid(0)}/stat").read_text()
    mpirun = int(stat.rpartition(")")[2].split()[1])
    os.kill(mpirun, signal.SIGKILL)
    result = run_process.wait()
    assert result.statuses["long"] == "error"
    assert not list(temporary.glob("*/ompi.*"))
