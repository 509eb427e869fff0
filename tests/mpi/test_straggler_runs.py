"""Slow ranks that are injected into real runs, and the reports that name them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jsonschema
import pytest
from benchmarks.stragglers import SAMPLE_ITERATIONS, Setting, judge_case, write_suite

from spbench.report.model import report_schema
from support.runs import SPBENCH, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]


def test_slow_rank_is_detected_and_named_in_all_reports(tmp_path: Path) -> None:
    """A sample of the trials of `python -m benchmarks.stragglers`."""
    setting = Setting(4, 10)
    home = tmp_path / "home"
    suite = write_suite(setting, SAMPLE_ITERATIONS[setting.ranks], tmp_path)
    result = run(str(suite), "--inject", "slow=10", home=home, limit=170)
    assert result.code == 1, result.stdout + result.stderr
    jsonschema.validate(result.report, report_schema())
    (case,) = result.report["cases"]
    assert judge_case(case, setting) == "right"
    assert case["reason"].startswith("fault found, as planted: rank 3 on ")
    waiting_ranks = [rank for rank in range(3) if f"rank {rank} on" in str(case["noisy"])]
    assert waiting_ranks == []  # ranks that wait for rank 3 are not stragglers
    (finding,) = [line for line in result.report["run"]["findings"] if line.startswith("rank 3 on")]
    assert finding.endswith("; planted by --inject slow=10")
    assert finding in " ".join(result.stdout.split())  # lines may be wrapped
    command = [SPBENCH, "results", "show", "--home", str(home)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finding in " ".join(process.stdout.split())
