"""Ranks' CPUs as they are, beside what the suite asks the real launcher for."""

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
    pytest.mark.skipif(CORES < 2, reason="one core is the same bound and unbound"),
]
ALL = ",".join(map(str, sorted(os.sched_getaffinity(0))))


def test_a_binding_that_took_stands_beside_the_ranks_numbers(tmp_path: Path) -> None:
    bound = ("--case", "second", "--set", "launch.bind=core")
    ended = run(str(TEST_SUITES / "faults.yaml"), *bound, home=tmp_path / "home")
    assert not any("bind: core" in finding for finding in ended.report["run"]["findings"])
    ranks = ended.case("second")["ranks"]
    assert [rank["cores"] for rank in ranks] == [1, 1]
    words = [SPBENCH, "results", "show", "--ranks", "--home", str(ended.home)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for rank in ranks:
        (row,) = (
            line.split()
            for line in shown.splitlines()
            if line.strip().startswith(f"{rank['rank']}  ")
        )
        assert row[1:3] == [rank["host"], str(rank["local_rank"])]
        assert row[3].partition("-")[0].partition(",")[0] == str(rank["cpus"][0])


def test_a_binding_that_was_undone_is_a_finding(tmp_path: Path) -> None:
    undone = ("--set", "launch.bind=core", "--set", f"launch.setup=['taskset -cp {ALL} $$']")
    ended = run(
        str(TEST_SUITES / "faults.yaml"), "--case", "second", *undone, home=tmp_path / "home"
    )
    assert ended.code == 0, ended.stdout + ended.stderr
    host = ended.case("second")["ranks"][0]["host"]
    told = ended.report["run"]["findings"]
    (finding,) = (sentence for sentence in told if "bind: core" in sentence)
    assert finding.startswith(f"rank 0 on {host} (and 1 more rank) may run on CPUs ")
    assert ", but bind: core asks for one core of its own; " in finding
    assert finding in " ".join(ended.stdout.split())  # lines may be wrapped
