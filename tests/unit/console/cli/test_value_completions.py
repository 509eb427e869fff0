"""Tests of the words that a shell completes."""

from types import SimpleNamespace

import pytest

from spbench.cli import value_completions
from spbench.record.runs.folder import list_runs
from spbench.report.baselines.creation import make_baseline
from spbench.report.baselines.files import save_baseline
from spbench.report.recorded import load_run
from support.paths import SUITES
from support.sample_events import make_complete_run, record_run


def complete(completion, incomplete="", **params):
    return completion(SimpleNamespace(params=params), incomplete)


@pytest.fixture
def home(tmp_path):
    for _ in (1, 2):
        record_run(tmp_path, make_complete_run())
    return tmp_path


def test_runs_are_completed_newest_first(home):
    completions = complete(value_completions.complete_run, home=home)
    assert completions[:2] == ["last", "last~1"]
    assert completions[2:] == [run.id for run in reversed(list_runs(home))]
    assert complete(value_completions.complete_run, "last~", home=home) == ["last~1"]
    assert complete(value_completions.complete_run, home=home / "elsewhere") == ["last"]


def test_sides_of_a_comparison_include_baselines(home):
    baseline, _ = make_baseline("main", load_run(list_runs(home)[-1]))
    save_baseline(home, "main", baseline)
    assert complete(value_completions.complete_side, "m", home=home) == ["main"]
    assert complete(value_completions.complete_baseline, home=home) == ["main"]


def test_cases_and_faults_are_from_the_suite():
    suite = str(SUITES / "links.yaml")
    cases = complete(value_completions.complete_case, suite=suite)
    assert cases
    assert complete(value_completions.complete_case, cases[0][:3], suite=suite)
    assert complete(value_completions.complete_case, suite="shipped:links") == cases
    assert "hang" in complete(value_completions.complete_fault, suite=suite)
    assert len(complete(value_completions.complete_fault)) > len(
        complete(value_completions.complete_fault, suite=suite)
    )


def test_bash_gets_no_ids_that_it_would_split(monkeypatch):
    suite = str(SUITES / "halo.yaml")
    assert any("=" in case for case in complete(value_completions.complete_case, suite=suite))
    monkeypatch.setenv("_SPBENCH_COMPLETE", "complete_bash")
    cases = complete(value_completions.complete_case, suite=suite)
    assert "small" in cases
    assert not any("=" in case for case in cases)


def test_invalid_suite_completes_nothing(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("cases: [")
    assert complete(value_completions.complete_case, suite=str(wrong)) == []
    assert complete(value_completions.complete_case) == []


def test_completes_names_of_the_catalog_and_launchers():
    assert complete(value_completions.complete_benchmark, "halo.c") == ["halo.compute"]
    assert complete(value_completions.complete_launcher, "mpi") == ["mpirun_rsh"]
    assert "resnet" in complete(value_completions.complete_network)
