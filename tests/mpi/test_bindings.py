"""The CPUs of ranks, compared with the binding that the suite requests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.paths import TEST_SUITES
from support.runs import SPBENCH, run

CORES = len(os.sched_getaffinity(0))

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.timeout(60),
    pytest.mark.skipif(CORES < 2, reason="with one core, binding has no effect"),
]
ALL = ",".join(map(str, sorted(os.sched_getaffinity(0))))


def test_results_show_the_cores_of_bound_ranks(tmp_path: Path) -> None:
    options = ("--case", "second", "--set", "launch.bind=core")
    result = run(str(TEST_SUITES / "faults.yaml"), *options, home=tmp_path / "home")
    assert not any("bind: core" in finding for finding in result.report["run"]["findings"])
    ranks = result.case("second")["ranks"]
    assert [rank["cores"] for rank in ranks] == [1, 1]
    command = [SPBENCH, "results", "show", "--ranks", "--home", str(result.home)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for rank in ranks:
        (row,) = (
            line.split()
            for line in output.splitlines()
            if line.strip().startswith(f"{rank['rank']}  ")
        )
        assert row[1:3] == [rank["host"], str(rank["local_rank"])]
        assert row[3].partition("-")[0].partition(",")[0] == str(rank["cpus"][0])


def test_undone_binding_is_a_finding(tmp_path: Path) -> None:
    options = ("--set", "launch.bind=core", "--set", f"launch.setup=['taskset -cp {ALL} $$']")
    result = run(
        str(TEST_SUITES / "faults.yaml"), "--case", "second", *options, home=tmp_path / "home"
    )
    assert result.code == 0, result.stdout + result.stderr
    host = result.case("second")["ranks"][0]["host"]
    findings = result.report["run"]["findings"]
    (finding,) = (text for text in findings if "bind: core" in text)
    assert finding.startswith(f"rank 0 on {host} (and 1 more rank) may run on CPUs ")
    assert ", but bind: core asks for one core of its own; " in finding
    assert finding in " ".join(result.stdout.split())  # lines may be wrapped
