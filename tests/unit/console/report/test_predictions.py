import pytest

from spbench.record.runs.folder import RunFolder
from spbench.report.predictions import find_predictions, format_planned_time
from unit.results import case, run


def test_a_model_of_links_predicts_beside_what_was_measured():
    (found,) = find_predictions(run(case("ring", {"time_ms": 2.0, "predicted_ms": 1.0}), case("a")))
    assert (found.case, found.source) == ("ring", "the model of the links")
    assert found.error == -0.5


def test_a_plans_step_is_read_from_its_suite(tmp_path):
    text = f"# x\n{format_planned_time(12.5)}\nschema: spbench.suite/1\n"
    (tmp_path / "suite.yaml").write_text(text)
    folder = RunFolder(tmp_path)
    (found,) = find_predictions(run(case("plan", {"time_ms": 10.0}), case("other"), folder=folder))
    assert (found.case, found.source, found.predicted_ms) == ("plan", "the plan", 12.5)
    assert found.error == 0.25


@pytest.mark.parametrize(
    "line", ["# Predicted: nan ms a step.", "# Predicted: 1e999 ms a step.", ""]
)
def test_without_a_plan_nothing_is_predicted(tmp_path, line):
    (tmp_path / "suite.yaml").write_text(f"{line}\n")
    assert find_predictions(run(case("plan"), folder=RunFolder(tmp_path))) == []
