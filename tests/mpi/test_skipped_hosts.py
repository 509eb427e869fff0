"""A run that goes on without a host that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.paths import TEST_SUITES
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

SUITE = str(TEST_SUITES / "faults.yaml")
HOSTS = ("--hosts", "localhost:2,nowhere.invalid:2", "--case", "second")


def test_the_healthy_hosts_run_and_the_exit_code_says_that_it_is_less(tmp_path: Path) -> None:
    ended = run(SUITE, *HOSTS, "--preflight", "--skip-bad-hosts", home=tmp_path / "home")
    assert ended.code == 1, ended.stdout + ended.stderr
    assert ended.statuses == {"second": "passed"}
    (error,) = ended.report["errors"]
    assert error.startswith("left out: nowhere.invalid: ")
    assert f"error: {error}" in ended.stdout
    assert error in ended.stderr
    assert ended.report["run"]["verdict"] == "failed"


def test_without_the_option_nothing_starts(tmp_path: Path) -> None:
    ended = run(SUITE, *HOSTS, "--preflight", home=tmp_path / "home")
    assert ended.code == 3
    assert "not fit for this run: nowhere.invalid: " in ended.stderr
    assert not (tmp_path / "home/runs").exists()
