"""Times that were predicted before they were measured: by a plan, or by a model of the links."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spbench.record.runs.files import read_file
from spbench.report.comparison.model import HEADLINE
from spbench.report.recorded import RecordedRun
from spbench.suites.loader import MAX_BYTES

PLANNED_CASE = "plan"
"""The name of the case that runs a plan, in the suite of `planned_line`."""
_BY_MODEL = "predicted_ms"
_PLANNED = re.compile(r"^# Predicted: ([0-9.e+-]+) ms a step\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """A case's time as it was predicted and as it was measured, in milliseconds."""

    case: str
    source: str
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """How much too long the prediction is, over what was measured."""
        return (self.predicted_ms - self.measured_ms) / self.measured_ms


def format_planned_time(step_ms: float) -> str:
    """Return the comment with which the suite of a plan says what was predicted."""
    return f"# Predicted: {step_ms:.4g} ms a step."


def find_predictions(run: RecordedRun) -> list[PredictedTime]:
    """Return the predictions of a run's cases beside what was measured, in the suite's order."""
    planned = _planned_ms(run)
    return [
        PredictedTime(id, by, predicted, case.metrics[HEADLINE].value)
        for id, case in run.cases.items()
        for by, predicted in (
            ("the plan", planned if case.name == PLANNED_CASE else None),
            ("the model of the links", _modelled_ms(run, id)),
        )
        if predicted and HEADLINE in case.metrics and case.metrics[HEADLINE].value > 0
    ]


def _modelled_ms(run: RecordedRun, case: str) -> float | None:
    found = run.cases[case].metrics.get(_BY_MODEL)
    return found.value if found is not None and found.value > 0 else None


def _planned_ms(run: RecordedRun) -> float | None:
    """Return the prediction that stands in the suite as the run has read it."""
    try:
        text = read_file(run.summary.folder.path / "suite.yaml", MAX_BYTES).decode()
        found = _PLANNED.search(text)
        value = float(found[1]) if found else 0.0
    except (OSError, ValueError):
        return None
    return value if 0 < value < float("inf") else None
