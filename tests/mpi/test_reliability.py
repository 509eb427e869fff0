"""A sample of the table of faults that `python -m benchmarks.faults` makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.reliability.faults import FAULT_TABLE
from support.reliability.trials import Log, table, tried_often
from support.reliability.where import Place, Places

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
    with Places(tmp_path_factory.mktemp("places")) as made:
        yield made


@pytest.mark.parametrize(
    "launcher", ["openmpi", pytest.param("mpirun_rsh", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_told_as_the_table_expects(places: Places, name: str, launcher: str) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == name)
    place = places.named(launcher)
    assert isinstance(place, Place), place
    if launcher not in fault.places:
        pytest.skip(f"the table does not try this with {launcher}")
    (seen,) = tried_often(fault, place, 1, seed=7)
    assert seen.wrong == [], seen.sentence


@pytest.mark.parametrize(
    "name", ["the ssh session of a node is killed", "the mpispawn of a node is killed"]
)
def test_a_node_that_mpirun_rsh_has_lost_is_named(places: Places, name: str) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == name)
    place = places.named("mpirun_rsh")
    assert isinstance(place, Place), place
    (seen,) = tried_often(fault, place, 1, seed=7)
    assert seen.wrong == [], seen.sentence


def test_what_is_not_as_expected_is_told_and_shown(places: Places, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULT_TABLE if fault.name == "a rank raises an exception")
    wrong = replace(fault, code=3, told=("no such words",))
    place = places.named("openmpi")
    assert isinstance(place, Place)
    log = Log(tmp_path / "log.jsonl")
    log.add(tried_often(wrong, place, 1, seed=7))
    (seen,) = Log(tmp_path / "log.jsonl").seen
    assert seen.wrong == ["exit 4 in place of 3", "'no such words' is not said"]
    assert "| 0 of 1 |" in table([wrong], ["openmpi"], log)
