"""``spbench scale`` on real ranks, with work that they share or do not share."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.runs import SPBENCH

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SHARED = "sleep $((2 / {np}))"
UNSHARED = "sleep 1"


def write_suite(folder: Path, **programs: str) -> str:
    cases = [
        {"name": name, "benchmark": "program.run", "params": {"argv": ["sh", "-c", script]}}
        for name, script in programs.items()
    ]
    path = folder / "scale.yaml"
    path.write_text(json.dumps({"schema": "spbench.suite/1", "name": "scale", "cases": cases}))
    return str(path)


def spbench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPBENCH, "scale", *arguments], capture_output=True, text=True, check=False
    )


def run_scale(
    suite: str, folder: Path, *arguments: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Return the process and its results by case."""
    path = folder / "found.json"
    process = spbench(suite, "--json", str(path), "--home", str(folder / "home"), *arguments)
    return process, {result["of"]: result for result in json.loads(path.read_text())}


@pytest.mark.long
def test_only_shared_work_scales(
    tmp_path: Path,
) -> None:
    suite = write_suite(tmp_path, shared=SHARED, alone=UNSHARED)
    process, results = run_scale(suite, tmp_path, "--np", "1,2", "--strong")
    assert process.returncode == 0, process.stdout + process.stderr
    assert results["shared"]["pays_to"] == 2
    assert results["shared"]["rows"][1]["efficiency"] > 0.7
    assert results["alone"]["pays_to"] == 1
    assert results["alone"]["rows"][1]["efficiency"] < 0.7
    assert "alone: it pays to 1 rank: from 1 to 2 ranks, an added rank brings" in process.stdout


@pytest.mark.long
def test_only_selected_cases_are_scaled(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, one=UNSHARED, other="exit 1")
    process, results = run_scale(suite, tmp_path, "--np", "1,2", "--weak", "-k", "one")
    assert process.returncode == 0, process.stdout + process.stderr
    assert list(results) == ["one"]
    assert results["one"]["rows"][1]["efficiency"] > 0.7


def test_failed_case_is_reported_and_others_are_compared(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, good=UNSHARED, bad="exit $(({np} - 1))")
    process, results = run_scale(suite, tmp_path, "--np", "1,2", "--weak")
    assert process.returncode == 1
    assert results["good"]["pays_to"] == 2
    assert results["bad"]["pays_to"] is None
    assert "exit_code" in results["bad"]["rows"][1]["note"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--np", "1,2"], "say what stays the same: the work (--strong), or a rank's (--weak)"),
        (["--np", "one", "--weak"], "--np one: write numbers of ranks, as 1,2,4"),
        (["--weak"], "--strong, --weak and --by say how ranks grow: give --np 1,2,4 too"),
        ([], "does not say on how many ranks: give --np 1,2,4"),
        (["--np", "2,1", "--weak"], "np of scale must rise"),
        (["--np", "2", "--weak"], "scale.np must be a list with at least 2 items, not with 1"),
        (["--np", "1,2", "--weak", "--by", "argv"], "argv does not follow the number of ranks"),
    ],
)
def test_wrong_arguments_are_rejected_before_a_run(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    process = spbench(
        write_suite(tmp_path, one=UNSHARED), *arguments, "--home", str(tmp_path / "home")
    )
    assert process.returncode == 2
    assert message in process.stderr
    assert not (tmp_path / "home").exists()
