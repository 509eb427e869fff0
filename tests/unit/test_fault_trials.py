"""Trials of faults: their log, leftover processes, and two runs in one trial."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults import has_mismatches

from support.cluster import slurm
from support.reliability import trial as trials_module
from support.reliability import trials
from support.reliability.faults import FAULT_TABLE
from support.reliability.testbeds import FaultTestbed
from support.reliability.trial import FaultTrial, TrialResult
from support.reliability.trials import TrialResultLog

TESTBED = FaultTestbed("openmpi", ("--launcher", "openmpi"))


def make_result(message: str, *runs: str) -> TrialResult:
    return TrialResult("fault", "openmpi", message, 4, 1.5, runs=list(runs))


def test_log_drops_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log.jsonl"
    TrialResultLog(path).add([make_result("first"), make_result("second")])
    with path.open("a") as file:
        file.write('{"fault": "fa')
    log = TrialResultLog(path)
    log.add([make_result("third")])
    results = TrialResultLog(path).select("fault", "openmpi")
    assert [result.message for result in results] == ["first", "second", "third"]


def test_only_selected_faults_and_launchers_count_as_mismatches(tmp_path: Path) -> None:
    fault = FAULT_TABLE[0]
    other_fault = FAULT_TABLE[2]
    log = TrialResultLog(tmp_path / "log.jsonl")
    log.add([TrialResult(fault.name, "openmpi", "", 0, 1.0, ["exit 0 instead of 4"])])
    log.add([TrialResult(other_fault.name, "hydra", "", 0, 1.0, [])])
    assert has_mismatches([fault, other_fault], ["openmpi", "hydra"], log)
    assert not has_mismatches([other_fault], ["openmpi", "hydra"], log)
    assert not has_mismatches([fault], ["hydra"], log)


def test_leftover_processes_of_any_run_are_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {1: make_result("a", "run-1", "run-2"), 2: make_result("b", "run-3")}
    monkeypatch.setattr(trials, "run_trial", lambda fault, testbed, folder, seed: results[seed])
    monkeypatch.setattr(
        trials, "find_leftover_runs", lambda runs: [run for run in runs if "2" in run]
    )
    first, second = trials.run_trials(FAULT_TABLE[0], TESTBED, 2, seed=1)
    assert first.mismatches == ["processes are left after 15 s"]
    assert second.mismatches == []


def test_each_run_of_a_trial_has_its_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = []
    monkeypatch.setattr(
        trials_module, "RunProcess", lambda *_, report_path, **__: paths.append(report_path)
    )
    trial = FaultTrial(TESTBED, tmp_path, seed=1)
    trial.start("suite")
    trial.start("suite")
    assert len(set(paths)) == 2
    assert trial.report_path == paths[-1]


def test_slurm_commands_may_be_outside_of_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "sinfo"
    command.write_text("#!/bin/sh\necho node01 node02\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(slurm, "_PATH", str(tmp_path))
    assert slurm._list_usable_nodes({}) == ("node01", "node02")
