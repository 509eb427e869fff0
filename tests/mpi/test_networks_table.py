"""The command that checks networks of torchvision in every layout: a sample."""

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


def render_table(folder: Path, only: str) -> list[str]:
    arguments = ["--folder", str(folder), "--only", only, "--layouts", LAYOUTS]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.networks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


def test_networks_equal_one_process_and_rows_are_reused(tmp_path: Path) -> None:
    head, _, *rows = render_table(tmp_path, SAMPLE)
    assert head == "| network | lp-3 | sp-1x2-lp | gathered |"
    assert rows == [f"| {name} | passed | passed | nothing |" for name in SAMPLE.split(";")]
    path = tmp_path / "mnasnet0_5.json"
    row = json.loads(path.read_text())
    row["statuses"]["lp-3"] = "kept"
    path.write_text(json.dumps(row))
    assert render_table(tmp_path, "mnasnet0_5")[-1] == "| mnasnet0_5 | kept | passed | nothing |"


def test_row_of_a_network_that_cannot_be_imported_has_the_reason(tmp_path: Path) -> None:
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    (row,) = render_table(tmp_path, name)[2:]
    reason = row.removeprefix(f"| {name} | ").partition(" |")[0]
    assert "the forward pass" in reason
