"""The command for a GPU machine with a time limit, on a stand-in for a GPU."""

import json
import subprocess
import sys

import pytest
from benchmarks.gpu_once.steps import STEPS

from support.paths import ROOT

GROUPS = 3
"""The number of processes that share the steps, which take six minutes together."""
pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_step_passes_in_a_rehearsal(group, tmp_path):
    steps = {step.name: step for step in STEPS[group::GROUPS]}
    arguments = ["-m", "benchmarks.gpu_once", "--rehearse", "--installed", "--seconds", "560"]
    process = subprocess.run(
        [sys.executable, *arguments, "--output", str(tmp_path), *steps],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    results = json.loads((tmp_path / "results.json").read_text())["steps"]
    statuses = {result["name"]: result["status"] for result in results}
    assert statuses == dict.fromkeys(steps, "passed"), process.stdout[-20_000:]
    assert process.returncode == 0
    for result in results:
        assert bool(result["cases"]) == (steps[result["name"]].suite is not None)
    assert (tmp_path / "reports.tar.gz").stat().st_size > 1000
