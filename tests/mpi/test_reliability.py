"""A sample of the table of faults that `python -m benchmarks.faults` makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.reliability.faults import FAULT_TABLE
from support.reliability.testbeds import FaultTestbed, FaultTestbeds
from support.reliability.trials import TrialLog, render_table, run_trials

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SAMPLE = (
    "a rank is killed (SIGKILL) while it measures",
    "a rank is killed before the first case",
    "the launcher is killed",
    "Ctrl-C twice",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory):
    """The places where ranks are on this machine."""
    with FaultTestbeds(tmp_path_factory.mktemp("places")) as made:
        yield made


@pytest.mark.parametrize(
    "launcher", ["openmpi", pytest.param("mpirun_rsh", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_told_as_the_table_expects(
    places: FaultTestbeds, name: str, launcher: str
) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == name)
    place = places.get(launcher)
    assert isinstance(place, FaultTestbed), place
    if launcher not in fault.testbeds:
        pytest.skip(f"the table does not try this with {launcher}")
    (seen,) = run_trials(fault, place, 1, seed=7)
    assert seen.mismatches == [], seen.message


@pytest.mark.parametrize(
    "name", ["the ssh session of a node is killed", "the mpispawn of a node is killed"]
)
def test_a_node_that_mpirun_rsh_has_lost_is_named(places: FaultTestbeds, name: str) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == name)
    place = places.get("mpirun_rsh")
    assert isinstance(place, FaultTestbed), place
    (seen,) = run_trials(fault, place, 1, seed=7)
    assert seen.mismatches == [], seen.message


def test_what_is_not_as_expected_is_told_and_shown(places: FaultTestbeds, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == "a rank raises an exception")
    wrong = replace(fault, code=3, expected_words=("no such words",))
    place = places.get("openmpi")
    assert isinstance(place, FaultTestbed)
    log = TrialLog(tmp_path / "log.jsonl")
    log.add(run_trials(wrong, place, 1, seed=7))
    (seen,) = TrialLog(tmp_path / "log.jsonl").results
    assert seen.mismatches == ["exit 4 in place of 3", "'no such words' is not said"]
    assert "| 0 of 1 |" in render_table([wrong], ["openmpi"], log)
