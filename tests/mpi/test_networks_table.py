"""The command that checks networks of torchvision in every layout: a sample, and its going on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(400)]
SAMPLE = "squeezenet1_1;mnasnet0_5"
LAYOUTS = "lp-3;sp-1x2-lp"


def table(folder: Path, only: str) -> list[str]:
    words = ["--folder", str(folder), "--only", only, "--layouts", LAYOUTS]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.networks", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_networks_as_they_come_equal_one_process_and_rows_are_kept(tmp_path: Path) -> None:
    head, _, *rows = table(tmp_path, SAMPLE)
    assert head == "| network | lp-3 | sp-1x2-lp | gathered |"
    assert rows == [f"| {name} | passed | passed | nothing |" for name in SAMPLE.split(";")]
    kept = tmp_path / "mnasnet0_5.json"
    row = json.loads(kept.read_text())
    row["statuses"]["lp-3"] = "kept"
    kept.write_text(json.dumps(row))
    assert table(tmp_path, "mnasnet0_5")[-1] == "| mnasnet0_5 | kept | passed | nothing |"


def test_what_cannot_be_imported_is_told_in_its_row(tmp_path: Path) -> None:
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    (row,) = table(tmp_path, name)[2:]
    told = row.removeprefix(f"| {name} | ").partition(" |")[0]
    assert "the forward pass" in told
