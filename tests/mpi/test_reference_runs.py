"""Runs on real ranks with expectations that have references and tolerances."""

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
    params: {size: 4MiB, iterations: 20}
    expect:
      time_ms.p50: EXPECT
"""
SYSTEMS = """
        systems:
          impossible: {reference: 1.0e-6, upper: 0.05}
          possible: {reference: 1000, upper: 0.05}
"""


def write_suite(tmp_path: Path, expect: str) -> str:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.replace("EXPECT", expect))
    return str(path)


def find_run_folder(result: RunResult) -> RunFolder:
    (path,) = (result.home / "runs").iterdir()
    return RunFolder(path)


@pytest.mark.long
def test_system_selects_the_reference(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, SYSTEMS)
    failed_result = run(suite, "--system", "impossible", home=tmp_path / "failed")
    assert failed_result.code == 1, failed_result.stdout + failed_result.stderr
    assert "x its reference 1.00 ns (allowed: up to +5 %)" in failed_result.stdout
    jsonschema.validate(failed_result.report, report_schema())
    (expectation,) = failed_result.case("copy")["expectations"]
    assert expectation["reference"]["system"] == "impossible"
    assert find_run_folder(failed_result).read_json("run.json")["system"] == "impossible"
    assert build_report(find_run_folder(failed_result).replay()) == failed_result.report

    passed_result = run(suite, "--system", "possible", home=tmp_path / "passed")
    assert (passed_result.code, passed_result.statuses) == (0, {"copy": "passed"})

    unknown_result = run(suite, "--system", "vm", home=tmp_path / "unknown")
    assert (unknown_result.code, unknown_result.statuses) == (0, {"copy": "passed"})
    assert (
        "expect of time_ms.p50 skipped: no reference for system vm (suite has impossible, possible)"
        in unknown_result.stdout
    )
    assert "1 passed, 1 expectation not judged" in unknown_result.stdout


def test_slow_rank_misses_the_reference_of_a_healthy_run(tmp_path: Path) -> None:
    first_result = run(write_suite(tmp_path, "{max: 1000}"), home=tmp_path / "measured")
    time = first_result.case("copy")["metrics"]["time_ms"]["p50"]
    # Other tests use the same cores, so the tolerance is large, but far below the injected factor.
    suite = write_suite(tmp_path, json.dumps({"reference": time, "upper": 5}))
    healthy_result = run(suite, home=tmp_path / "healthy")
    assert healthy_result.code == 0, healthy_result.stdout + healthy_result.stderr
    slow_result = run(suite, "--inject", "slow=50", home=tmp_path / "slow")
    assert slow_result.code == 1
    assert "x its reference" in slow_result.case("copy")["reason"]
