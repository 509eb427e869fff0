"""Runs on real ranks whose expectations have references with tolerances."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_report
from spbench.report.model import report_schema
from support.runs import RunResult, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = """\
schema: spbench.suite/1
name: references
cases:
  - name: copy
    benchmark: memory.copy
    np: 1
    params: {iterations: 20}
    expect:
      time_ms.p50: EXPECT
"""
SYSTEMS = """
        systems:
          impossible: {reference: 1.0e-6, upper: 0.05}
          possible: {reference: 1000, upper: 0.05}
"""


def suite_of(tmp_path: Path, expect: str) -> str:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.replace("EXPECT", expect))
    return str(path)


def folder_of(ended: RunResult) -> RunFolder:
    (path,) = (ended.home / "runs").iterdir()
    return RunFolder(path)


def test_the_system_decides_which_reference_a_run_fails(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, SYSTEMS)
    failed = run(suite, "--system", "impossible", home=tmp_path / "failed")
    assert failed.code == 1, failed.stdout + failed.stderr
    assert "x its reference 1.00 ns (allowed: up to +5 %)" in failed.stdout
    jsonschema.validate(failed.report, report_schema())
    (expectation,) = failed.case("copy")["expectations"]
    assert expectation["reference"]["system"] == "impossible"
    assert folder_of(failed).read_json("run.json")["system"] == "impossible"
    assert build_report(folder_of(failed).replay()) == failed.report

    passed = run(suite, "--system", "possible", home=tmp_path / "passed")
    assert (passed.code, passed.statuses) == (0, {"copy": "passed"})

    unknown = run(suite, "--system", "vm", home=tmp_path / "unknown")
    assert (unknown.code, unknown.statuses) == (0, {"copy": "passed"})
    assert (
        "expect of time_ms.p50 skipped: no reference for system vm (suite has impossible, possible)"
        in unknown.stdout
    )
    assert "1 passed, 1 expectation not judged" in unknown.stdout


def test_a_slow_rank_fails_a_reference_that_the_healthy_run_passes(tmp_path: Path) -> None:
    measured = run(suite_of(tmp_path, "{max: 1000}"), home=tmp_path / "measured")
    time = measured.case("copy")["metrics"]["time_ms"]["p50"]
    # Other tests have the same cores, so the tolerance is far below the planted factor only.
    suite = suite_of(tmp_path, json.dumps({"reference": time, "upper": 5}))
    healthy = run(suite, home=tmp_path / "healthy")
    assert healthy.code == 0, healthy.stdout + healthy.stderr
    slow = run(suite, "--inject", "slow=50", home=tmp_path / "slow")
    assert slow.code == 1
    assert "x its reference" in slow.case("copy")["reason"]
