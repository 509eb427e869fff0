"""Estimates from durations of real runs, and runs too large for this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spbench.engine.estimate import estimate_plan
from spbench.engine.plan import Request, plan_run
from spbench.engine.run_estimate import EstimateSource
from spbench.launch.placement import count_cores
from support.paths import ROOT
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = """\
schema: spbench.suite/1
name: burns
cases:
  - {name: first, benchmark: compute.burn, np: 2, params: {n: 64, seconds: 1.0}}
  - {name: second, benchmark: compute.burn, np: 2, params: {n: 64, seconds: 2.0}}
"""


def test_next_estimate_uses_the_durations_of_a_run(tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    home = tmp_path / "home"
    suite.write_text(SUITE)
    plan = plan_run(Request(suite, home, dict(os.environ)))
    first_estimate = estimate_plan(plan, home)
    assert {case.source for case in first_estimate.cases.values()} == {EstimateSource.WORK}
    result = run(str(suite), home=home)
    assert result.statuses == {"first": "passed", "second": "passed"}
    second_estimate = estimate_plan(plan, home)
    assert {case.source for case in second_estimate.cases.values()} == {EstimateSource.HISTORY}
    assert second_estimate.seconds == pytest.approx(result.report["run"]["duration_s"], rel=0.4)
    assert 2.0 < second_estimate.cases["second"].seconds < second_estimate.seconds


def test_run_with_too_many_ranks_does_not_start(tmp_path: Path) -> None:
    suite = str(ROOT / "suites" / "links.yaml")
    home = tmp_path / "home"
    result = run(suite, "-k", "pair", "--set", f"np={5 * count_cores()}", home=home)
    assert result.code == 3
    assert "ranks per core, more than 4" in result.stderr
    assert not (home / "runs").exists()


def test_run_with_many_ranks_has_one_warning(tmp_path: Path) -> None:
    suite = str(ROOT / "suites" / "links.yaml")
    np = 2 * count_cores()
    arguments = (suite, "-k", "neighbours", "--set", f"np={np}", "--set", "iterations=5")
    result = run(*arguments, home=tmp_path / "home")
    assert result.code == 0, result.stderr
    assert result.stdout.count(f"{np} ranks share {count_cores()} core") == 1
