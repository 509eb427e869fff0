"""``spbench scale`` on real ranks: work that two share, and work that none can share."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.runs import SPBENCH

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SHARED = "sleep $((2 / {np}))"
ALONE = "sleep 1"


def suite_of(folder: Path, **programs: str) -> str:
    cases = [
        {"name": name, "benchmark": "program.run", "params": {"argv": ["sh", "-c", words]}}
        for name, words in programs.items()
    ]
    path = folder / "scale.yaml"
    path.write_text(json.dumps({"schema": "spbench.suite/1", "name": "scale", "cases": cases}))
    return str(path)


def spbench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SPBENCH, "scale", *words], capture_output=True, text=True, check=False)


def scale(
    suite: str, folder: Path, *words: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Return the ended command, and what it found by case."""
    out = folder / "found.json"
    ended = spbench(suite, "--json", str(out), "--home", str(folder / "home"), *words)
    return ended, {one["of"]: one for one in json.loads(out.read_text())}


@pytest.mark.long
def test_work_that_ranks_share_pays_and_work_that_they_do_not_share_does_not(
    tmp_path: Path,
) -> None:
    suite = suite_of(tmp_path, shared=SHARED, alone=ALONE)
    ended, found = scale(suite, tmp_path, "--np", "1,2", "--strong")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert found["shared"]["pays_to"] == 2
    assert found["shared"]["rows"][1]["efficiency"] > 0.7
    assert found["alone"]["pays_to"] == 1
    assert found["alone"]["rows"][1]["efficiency"] < 0.7
    assert "alone: it pays to 1 rank: from 1 to 2 ranks, an added rank brings" in ended.stdout


@pytest.mark.long
def test_only_what_is_selected_goes_over_to_other_ranks(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, one=ALONE, other="exit 1")
    ended, found = scale(suite, tmp_path, "--np", "1,2", "--weak", "-k", "one")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert list(found) == ["one"]
    assert found["one"]["rows"][1]["efficiency"] > 0.7


def test_a_case_that_fails_is_told_and_the_others_are_compared(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, good=ALONE, bad="exit $(({np} - 1))")
    ended, found = scale(suite, tmp_path, "--np", "1,2", "--weak")
    assert ended.returncode == 1
    assert found["good"]["pays_to"] == 2
    assert found["bad"]["pays_to"] is None
    assert "exit_code" in found["bad"]["rows"][1]["note"]


@pytest.mark.parametrize(
    ("words", "told"),
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
def test_a_wrong_line_is_refused_before_anything_runs(
    tmp_path: Path, words: list[str], told: str
) -> None:
    ended = spbench(suite_of(tmp_path, one=ALONE), *words, "--home", str(tmp_path / "home"))
    assert ended.returncode == 2
    assert told in ended.stderr
    assert not (tmp_path / "home").exists()
