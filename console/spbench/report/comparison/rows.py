"""The rows of a comparison's tables: one for each case, or one for each metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from spbench.record.efficiency import format_metric
from spbench.record.metric_names import format_folded_name
from spbench.record.number_formatting import DISTURBED, format_factor, format_number
from spbench.report.comparison.compare import rules_out_slowdown
from spbench.report.comparison.model import (
    HEADLINE,
    CaseJudgement,
    CasePair,
    JudgementKind,
    MetricRow,
    Outcome,
    RunComparison,
)
from spbench.report.text_tables import TextColumn
from spbench_core.events.statuses import CaseStatus


class OutcomeLabel(StrEnum):
    """The displayed outcome of a case or of a metric: a sign and a word."""

    WORSE = "▼ worse"
    BETTER = "▲ better"
    SAME = "= same"
    NOT_JUDGED = "? not judged"
    NOT_SLOWER = "✓ not slower"
    BROKEN = "✗ broken"
    CANCELLED = "- cancelled"

    @property
    def style(self) -> str:
        """The name of its style, such as ``worse`` or ``not-judged``."""
        return self.name.lower().replace("_", "-")

    @property
    def word(self) -> str:
        """The label without its sign, such as ``not judged``."""
        return self.name.lower().replace("_", " ")


_LABELS: Mapping[Outcome | None, OutcomeLabel] = {
    Outcome.WORSE: OutcomeLabel.WORSE,
    Outcome.BETTER: OutcomeLabel.BETTER,
    Outcome.SAME: OutcomeLabel.SAME,
}
DIFFERENT = (OutcomeLabel.WORSE, OutcomeLabel.BETTER, OutcomeLabel.BROKEN)
"""The labels of cases that a gate always lists."""
_WITHOUT_RESULT = (OutcomeLabel.BROKEN, OutcomeLabel.CANCELLED)
_ORDER = {OutcomeLabel.BROKEN: 0, OutcomeLabel.WORSE: 0, OutcomeLabel.BETTER: 1}
_LAST = 2
_A = TextColumn("a", right=True)
_B = TextColumn("b", right=True)
_RATIO = TextColumn("b/a", right=True)
_INTERVAL = TextColumn("95 % interval", optional=True)
CASE_COLUMNS = (
    TextColumn("outcome"),
    TextColumn("case", ids=True),
    *(_A, _B, _RATIO, _INTERVAL),
)
"""The columns of a table with one row for each case."""
METRIC_COLUMNS = (
    TextColumn("case", ids=True),
    TextColumn("metric"),
    *(_A, _B, _RATIO, _INTERVAL),
    TextColumn("outcome"),
)
"""The columns of a table with one row for each metric."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One row of a comparison.

    Attributes:
        row: The metric; None if the case has no value of it in either run.
        disturbed: Whether the times of the case were disturbed in a and in b.
    """

    pair: CasePair
    label: OutcomeLabel | None
    row: MetricRow | None
    disturbed: tuple[bool, bool] = (False, False)

    @property
    def metric(self) -> str:
        """The displayed name of the metric."""
        return "" if self.row is None else format_folded_name(self.row.metric, self.row.unit)

    @property
    def a(self) -> str:
        """The value in run a with its unit."""
        return self._format_value(self.row.a if self.row else None, disturbed=self.disturbed[0])

    @property
    def b(self) -> str:
        """The value in run b with its unit."""
        return self._format_value(self.row.b if self.row else None, disturbed=self.disturbed[1])

    @property
    def ratio(self) -> str:
        """The ratio of b to a, such as ``1.27x``; ``~1.27x`` if times were disturbed."""
        if self.row is None or self.row.ratio is None or any(self.cut_short):
            return ""
        # Disturbances affect times, but not bytes and counts.
        disturbed = any(self.disturbed) and self.row.better != "none"
        return (DISTURBED if disturbed else "") + format_factor(self.row.ratio)

    @property
    def interval(self) -> str:
        """The ratio's 95 % interval, such as ``1.21 to 1.33``."""
        return "" if self.row is None or any(self.cut_short) else format_interval(self.row)

    @property
    def cut_short(self) -> tuple[bool, bool]:
        """Whether the case was cut short in a and in b, so that iterations are missing."""
        statuses = self.pair.status_a, self.pair.status_b
        is_a, is_b = (CaseStatus(status).is_cut_short for status in statuses)
        return is_a, is_b

    @property
    def conclusion(self) -> str:
        """The ratio and the outcome in words: ``b takes 1.27x the time of a: worse``."""
        outcome = "" if self.label is None else f": {self.label.word}"
        if not self.ratio:
            return f"no ratio of times{outcome}"
        return f"b takes {self.ratio} the time of a{outcome}"

    def case_cells(self) -> tuple[str, ...]:
        """Return the cells of `CASE_COLUMNS`."""
        return (self.label or "", self.pair.id, self.a, self.b, self.ratio, self.interval)

    def metric_cells(self) -> tuple[str, ...]:
        """Return the cells of `METRIC_COLUMNS`."""
        return (
            *(self.pair.id, self.metric, self.a, self.b, self.ratio, self.interval),
            self.label or "",
        )

    def _format_value(self, value: float | None, *, disturbed: bool) -> str:
        if value is None or self.row is None:
            return ""
        return format_metric(value, self.row.unit, self.row.metric, disturbed=disturbed)


def format_interval(row: MetricRow) -> str:
    """Return the ratio's 95 % interval, such as ``1.21 to 1.33``, or nothing."""
    return "" if row.interval is None else " to ".join(map(format_number, row.interval))


def case_rows(comparison: RunComparison) -> list[ComparedRow]:
    """Return a row for each case: worse and broken ones first, then better ones."""
    labels = _label_cases(comparison)
    rows = [
        ComparedRow(pair, labels[pair.id], pair.headline, _find_disturbed(comparison, pair.id))
        for pair in comparison.cases
        if comparison.only is None or pair.headline is not None
    ]
    return sorted(rows, key=_get_sort_position)


def metric_rows(comparison: RunComparison) -> list[ComparedRow]:
    """Return a row for each metric of each case, in the order of `case_rows`."""
    labels = _label_cases(comparison)
    rows = []
    for pair in sorted(comparison.cases, key=lambda pair: _ORDER.get(labels[pair.id], _LAST)):
        disturbed = _find_disturbed(comparison, pair.id)
        for row in pair.rows:
            label = _label_metric(row, labels[pair.id])
            rows.append(ComparedRow(pair, label, row, disturbed))
        if not pair.rows:
            rows.append(ComparedRow(pair, labels[pair.id], None))
    return rows


def _find_disturbed(comparison: RunComparison, case_id: str) -> tuple[bool, bool]:
    a, b = comparison.conditions
    return a.is_disturbed(case_id), b.is_disturbed(case_id)


def _get_sort_position(row: ComparedRow) -> int:
    return _LAST if row.label is None else _ORDER.get(row.label, _LAST)


def _label_cases(comparison: RunComparison) -> dict[str, OutcomeLabel]:
    judgements = {judgement.case: judgement for judgement in comparison.judgements}
    return {pair.id: _label_case(pair, judgements.get(pair.id)) for pair in comparison.cases}


def _label_case(pair: CasePair, judgement: CaseJudgement | None) -> OutcomeLabel:
    if judgement is not None and judgement.judgement is JudgementKind.BROKEN:
        return OutcomeLabel.BROKEN
    if pair.cancelled:
        return OutcomeLabel.CANCELLED
    outcome = None if judgement is None else judgement.outcome
    is_not_slower = pair.headline is not None and rules_out_slowdown(pair.headline)
    unjudged = OutcomeLabel.NOT_SLOWER if is_not_slower else OutcomeLabel.NOT_JUDGED
    return _LABELS.get(outcome, unjudged)


def _label_metric(row: MetricRow, case_label: OutcomeLabel) -> OutcomeLabel | None:
    """Return the label of a metric; None if its case has no result."""
    if row.metric == HEADLINE:
        return case_label
    if row.better == "none" or case_label in _WITHOUT_RESULT:
        return None
    return _LABELS.get(row.outcome, OutcomeLabel.NOT_JUDGED)
