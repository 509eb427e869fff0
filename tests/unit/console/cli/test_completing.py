"""The words that a shell completes."""

from types import SimpleNamespace

import pytest

from places import SUITES
from spbench.cli import completing
from spbench.record.runs.folder import list_runs
from spbench.report.baselines.files import save_baseline
from spbench.report.baselines.making import make_baseline
from spbench.report.recorded import load_run
from unit.events import recorded, whole_run


def told(completion, incomplete="", **given):
    return completion(SimpleNamespace(params=given), incomplete)


@pytest.fixture
def home(tmp_path):
    for _ in (1, 2):
        recorded(tmp_path, whole_run())
    return tmp_path


def test_runs_are_offered_newest_first(home):
    found = told(completing.complete_run, home=home)
    assert found[:2] == ["last", "last~1"]
    assert found[2:] == [run.id for run in reversed(list_runs(home))]
    assert told(completing.complete_run, "last~", home=home) == ["last~1"]
    assert told(completing.complete_run, home=home / "elsewhere") == ["last"]


def test_a_side_of_a_comparison_may_be_a_baseline(home):
    made, _ = make_baseline("main", load_run(list_runs(home)[-1]))
    save_baseline(home, "main", made)
    assert told(completing.complete_side, "m", home=home) == ["main"]
    assert told(completing.complete_baseline, home=home) == ["main"]


def test_cases_and_faults_are_those_of_the_suite():
    suite = str(SUITES / "links.yaml")
    cases = told(completing.complete_case, suite=suite)
    assert cases
    assert told(completing.complete_case, cases[0][:3], suite=suite)
    assert told(completing.complete_case, suite="shipped:links") == cases
    assert "hang" in told(completing.complete_fault, suite=suite)
    assert len(told(completing.complete_fault)) > len(told(completing.complete_fault, suite=suite))


def test_bash_gets_no_ids_that_it_would_take_apart(monkeypatch):
    suite = str(SUITES / "halo.yaml")
    assert any("=" in case for case in told(completing.complete_case, suite=suite))
    monkeypatch.setenv("_SPBENCH_COMPLETE", "complete_bash")
    cases = told(completing.complete_case, suite=suite)
    assert "small" in cases
    assert not any("=" in case for case in cases)


def test_a_wrong_suite_completes_nothing(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("cases: [")
    assert told(completing.complete_case, suite=str(wrong)) == []
    assert told(completing.complete_case) == []


def test_names_of_the_catalog_and_launchers():
    assert told(completing.complete_benchmark, "halo.c") == ["halo.compute"]
    assert told(completing.complete_launcher, "mpi") == ["mpirun_rsh"]
    assert "resnet" in told(completing.complete_network)
