"""A sample of the table of faults of `python -m benchmarks.faults`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.reliability.faults import FAULT_TABLE
from support.reliability.testbeds import FaultTestbed, FaultTestbeds
from support.reliability.trials import TrialResultLog, render_table, run_trials

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SAMPLE = (
    "a rank is killed (SIGKILL) while it measures",
    "a rank is killed before the first case",
    "the launcher is killed",
    "Ctrl-C twice",
)


@pytest.fixture(scope="module")
def testbeds(tmp_path_factory: pytest.TempPathFactory):
    """Testbeds with all ranks on this machine."""
    with FaultTestbeds(tmp_path_factory.mktemp("testbeds")) as testbeds:
        yield testbeds


@pytest.mark.parametrize(
    "launcher", ["openmpi", pytest.param("mpirun_rsh", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", SAMPLE)
def test_fault_has_the_expected_outcome(testbeds: FaultTestbeds, name: str, launcher: str) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == name)
    testbed = testbeds.get(launcher)
    assert isinstance(testbed, FaultTestbed), testbed
    if launcher not in fault.testbeds:
        pytest.skip(f"the table does not try this with {launcher}")
    (result,) = run_trials(fault, testbed, 1, seed=7)
    assert result.mismatches == [], result.message


@pytest.mark.parametrize(
    "name",
    [
        "the ssh session of a node is killed",
        pytest.param("the mpispawn of a node is killed", marks=pytest.mark.long),
    ],
)
def test_node_that_mpirun_rsh_lost_is_named(testbeds: FaultTestbeds, name: str) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == name)
    testbed = testbeds.get("mpirun_rsh")
    assert isinstance(testbed, FaultTestbed), testbed
    (result,) = run_trials(fault, testbed, 1, seed=7)
    assert result.mismatches == [], result.message


def test_unexpected_outcome_is_reported_and_counted(
    testbeds: FaultTestbeds, tmp_path: Path
) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == "a rank raises an exception")
    wrong_fault = replace(fault, code=3, expected_words=("no such words",))
    testbed = testbeds.get("openmpi")
    assert isinstance(testbed, FaultTestbed)
    log = TrialResultLog(tmp_path / "log.jsonl")
    log.add(run_trials(wrong_fault, testbed, 1, seed=7))
    (result,) = TrialResultLog(tmp_path / "log.jsonl").results
    assert result.mismatches == ["exit 4 instead of 3", "'no such words' is not in the message"]
    assert "| 0 of 1 |" in render_table([wrong_fault], ["openmpi"], log)
