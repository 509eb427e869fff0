"""A run without a host that cannot be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.paths import TEST_SUITES
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

SUITE = str(TEST_SUITES / "faults.yaml")
HOSTS = ("--hosts", "localhost:2,nowhere.invalid:2", "--case", "second")


def test_run_on_the_healthy_hosts_exits_with_1(tmp_path: Path) -> None:
    result = run(SUITE, *HOSTS, "--preflight", "--skip-bad-hosts", home=tmp_path / "home")
    assert result.code == 1, result.stdout + result.stderr
    assert result.statuses == {"second": "passed"}
    (error,) = result.report["errors"]
    assert error.startswith("left out: nowhere.invalid: ")
    assert f"error: {error}" in result.stdout
    assert error in result.stderr
    assert result.report["run"]["verdict"] == "failed"


def test_run_does_not_start_without_skip_bad_hosts(tmp_path: Path) -> None:
    result = run(SUITE, *HOSTS, "--preflight", home=tmp_path / "home")
    assert result.code == 3
    assert "not fit for this run: nowhere.invalid: " in result.stderr
    assert not (tmp_path / "home/runs").exists()
