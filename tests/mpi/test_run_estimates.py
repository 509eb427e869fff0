"""Durations of real runs are found again, and runs beyond this machine start no rank."""

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


def test_the_durations_of_a_run_are_those_of_the_next_estimate(tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    home = tmp_path / "home"
    suite.write_text(SUITE)
    planned = plan_run(Request(suite, home, dict(os.environ)))
    before = estimate_plan(planned, home)
    assert {case.source for case in before.cases.values()} == {EstimateSource.WORK}
    ended = run(str(suite), home=home)
    assert ended.statuses == {"first": "passed", "second": "passed"}
    after = estimate_plan(planned, home)
    assert {case.source for case in after.cases.values()} == {EstimateSource.HISTORY}
    assert after.seconds == pytest.approx(ended.report["run"]["duration_s"], rel=0.4)
    assert 2.0 < after.cases["second"].seconds < after.seconds


def test_a_run_of_too_many_ranks_starts_none(tmp_path: Path) -> None:
    suite = str(ROOT / "suites" / "links.yaml")
    home = tmp_path / "home"
    ended = run(suite, "-k", "pair", "--set", f"np={5 * count_cores()}", home=home)
    assert ended.code == 3
    assert "ranks per core, more than 4" in ended.stderr
    assert not (home / "runs").exists()


def test_a_run_of_many_ranks_is_warned_of_once(tmp_path: Path) -> None:
    suite = str(ROOT / "suites" / "links.yaml")
    np = 2 * count_cores()
    words = (suite, "-k", "neighbours", "--set", f"np={np}", "--set", "iterations=5")
    ended = run(*words, home=tmp_path / "home")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.count(f"{np} ranks share {count_cores()} core") == 1
