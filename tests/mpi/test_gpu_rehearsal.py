"""The command for a GPU machine with a time limit, rehearsed on a stand-in for a GPU."""

import json
import subprocess
import sys

import pytest
from benchmarks.gpu_once.steps import STEPS

from places import ROOT

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]


def test_every_step_passes_in_a_rehearsal(tmp_path):
    words = ["-m", "benchmarks.gpu_once", "--rehearse", "--installed", "--seconds", "560"]
    done = subprocess.run(
        [sys.executable, *words, "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    steps = json.loads((tmp_path / "results.json").read_text())["steps"]
    assert {step["name"]: step["status"] for step in steps} == {
        step.name: "passed" for step in STEPS
    }, done.stdout[-20_000:]
    assert done.returncode == 0
    cases = [case for step in steps for case in step["cases"]]
    assert len(cases) > 40
    assert (tmp_path / "reports.tar.gz").stat().st_size > 1000
