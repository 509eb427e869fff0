"""Slow ranks that are planted in real runs, and where they are named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jsonschema
import pytest
from benchmarks.stragglers import SAMPLE_ITERATIONS, Setting, judge_case, write_suite

from spbench.report.model import report_schema
from support.runs import SPBENCH, run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]


def test_a_planted_slow_rank_is_noticed_and_named_for_good(tmp_path: Path) -> None:
    """A sample of what `python -m benchmarks.stragglers` tries, on ranks that wait for it."""
    setting = Setting(4, 10)
    home = tmp_path / "home"
    suite = write_suite(setting, SAMPLE_ITERATIONS[setting.ranks], tmp_path)
    ended = run(str(suite), "--inject", "slow=10", home=home, limit=170)
    assert ended.code == 1, ended.stdout + ended.stderr
    jsonschema.validate(ended.report, report_schema())
    (case,) = ended.report["cases"]
    assert judge_case(case, setting) == "right"
    assert case["reason"].startswith("planted fault noticed: rank 3 on ")
    waited = [rank for rank in range(3) if f"rank {rank} on" in str(case["noisy"])]
    assert waited == []  # these wait for rank 3
    (finding,) = [line for line in ended.report["run"]["findings"] if line.startswith("rank 3 on")]
    assert finding.endswith("; planted by --inject slow=10")
    assert finding in " ".join(ended.stdout.split())  # lines may be wrapped
    words = [SPBENCH, "results", "show", "--home", str(home)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert finding in " ".join(shown.stdout.split())
