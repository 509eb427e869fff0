"""Times that a plan or a model of the links predicted before the measurement."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spbench.record.runs.files import read_file
from spbench.report.comparison.model import HEADLINE
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.suites.loader import MAX_BYTES

PLANNED_CASE = "plan"
"""The name of the case that runs a plan, in a suite with `format_planned_time`."""
_BY_MODEL = "predicted_ms"
_PLANNED = re.compile(r"^# Predicted: ([0-9.e+-]+) ms a step\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """The predicted and the measured time of a case, in milliseconds."""

    case: str
    source: str
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """The error of the prediction as a share of the measured time."""
        return (self.predicted_ms - self.measured_ms) / self.measured_ms


def format_planned_time(step_ms: float) -> str:
    """Return the comment in a plan's suite that records the predicted time."""
    return f"# Predicted: {step_ms:.4g} ms a step."


def find_predictions(run: RecordedRun) -> list[PredictedTime]:
    """Return the predicted and measured times of a run's cases, in the suite's order."""
    planned = _read_planned_ms(run)
    return [
        PredictedTime(id_, source, predicted, case.metrics[HEADLINE].value)
        for id_, case in run.cases.items()
        for source, predicted in (
            ("the plan", planned if case.name == PLANNED_CASE else None),
            ("the model of the links", _find_modelled_ms(case)),
        )
        if predicted and HEADLINE in case.metrics and case.metrics[HEADLINE].value > 0
    ]


def _find_modelled_ms(case: CasePart) -> float | None:
    metric = case.metrics.get(_BY_MODEL)
    return metric.value if metric is not None and metric.value > 0 else None


def _read_planned_ms(run: RecordedRun) -> float | None:
    """Return the prediction in the run's copy of the suite."""
    try:
        text = read_file(run.summary.folder.path / "suite.yaml", MAX_BYTES).decode()
        match = _PLANNED.search(text)
        planned_ms = float(match[1]) if match else 0.0
    except (OSError, ValueError):
        return None
    return planned_ms if 0 < planned_ms < float("inf") else None
