"""Predicted times next to measured ones."""

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.predictions import find_predictions, format_planned_time
from support.sample_runs import make_case, make_run


def test_compares_the_link_model_with_the_measured_time(messages):
    recorded = make_run(make_case("ring", {"time_ms": 2.0, "predicted_ms": 1.0}), make_case("a"))
    (prediction,) = find_predictions(recorded)
    messages.check((prediction.case, prediction.source))
    assert prediction.error == -0.5


def test_reads_the_planned_time_from_the_suite(tmp_path):
    text = f"# x\n{format_planned_time(12.5)}\nschema: spbench.suite/1\n"
    (tmp_path / "suite.yaml").write_text(text)
    folder = RunFolder(tmp_path)
    recorded = make_run(make_case("plan", {"time_ms": 10.0}), make_case("other"), folder=folder)
    (prediction,) = find_predictions(recorded)
    assert (prediction.case, prediction.source, prediction.predicted_ms) == (
        "plan",
        "the plan",
        12.5,
    )
    assert prediction.error == 0.25


@pytest.mark.parametrize(
    "line", ["# Predicted: nan ms a step.", "# Predicted: 1e999 ms a step.", ""]
)
def test_no_prediction_without_a_valid_planned_time(tmp_path, line):
    (tmp_path / "suite.yaml").write_text(f"{line}\n")
    assert find_predictions(make_run(make_case("plan"), folder=RunFolder(tmp_path))) == []
