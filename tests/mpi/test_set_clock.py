"""A run during which the system clock is set back by an hour."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from support.paths import TEST_SUITES
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

MIXED = str(TEST_SUITES / "mixed.yaml")
SET_BACK = """
import time
_time, _start = time.time, time.monotonic()
def set_back():
    return _time() - (3600.0 if time.monotonic() - _start > 1.0 else 0.0)
time.time = set_back
"""


def test_no_duration_is_negative_if_the_clock_is_set_back(tmp_path: Path) -> None:
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SET_BACK)
    result = run(MIXED, "-k", "narrow", home=tmp_path / "home", env={"PYTHONPATH": str(folder)})
    assert result.code == 0, result.stderr
    assert 0.0 < result.report["run"]["duration_s"] < 120.0
    for part in (result.report["run"], *result.report["cases"]):
        if part["started"] is not None:
            assert datetime.fromisoformat(part["finished"]) >= datetime.fromisoformat(
                part["started"]
            )
    assert " in -" not in result.stdout
