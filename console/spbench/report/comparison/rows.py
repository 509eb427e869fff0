"""The rows of a comparison: one for each case by its time, or one for each metric of each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from spbench.record.efficiency import format_metric
from spbench.record.metric_names import format_folded_name
from spbench.record.number_formatting import DISTURBED, format_factor, format_number
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


class OutcomeLabel(StrEnum):
    """The outcome of a case or of a metric as people read it: sign and word."""

    WORSE = "▼ worse"
    BETTER = "▲ better"
    SAME = "= same"
    NOT_JUDGED = "? not judged"
    BROKEN = "✗ broken"

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
"""The labels of cases that a gate names, however many there are."""
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
        """The name of the metric for people."""
        return "" if self.row is None else format_folded_name(self.row.metric, self.row.unit)

    @property
    def a(self) -> str:
        """The value in run a with its unit."""
        return self._format(self.row.a if self.row else None, disturbed=self.disturbed[0])

    @property
    def b(self) -> str:
        """The value in run b with its unit."""
        return self._format(self.row.b if self.row else None, disturbed=self.disturbed[1])

    @property
    def ratio(self) -> str:
        """The ratio of b to a, such as ``1.27x``; ``~1.27x`` if times were disturbed."""
        if self.row is None or self.row.ratio is None:
            return ""
        # Bytes and counts stay the same, whatever disturbs the times.
        disturbed = any(self.disturbed) and self.row.better != "none"
        return (DISTURBED if disturbed else "") + format_factor(self.row.ratio)

    @property
    def interval(self) -> str:
        """The ratio's 95 % interval, such as ``1.21 to 1.33``."""
        return "" if self.row is None else format_interval(self.row)

    def case_cells(self) -> tuple[str, ...]:
        """Return the cells of `CASE_COLUMNS`."""
        return (self.label or "", self.pair.id, self.a, self.b, self.ratio, self.interval)

    def metric_cells(self) -> tuple[str, ...]:
        """Return the cells of `METRIC_COLUMNS`."""
        return (
            *(self.pair.id, self.metric, self.a, self.b, self.ratio, self.interval),
            self.label or "",
        )

    def _format(self, value: float | None, *, disturbed: bool) -> str:
        if value is None or self.row is None:
            return ""
        return format_metric(value, self.row.unit, self.row.metric, disturbed=disturbed)


def format_interval(row: MetricRow) -> str:
    """Return the ratio's 95 % interval, such as ``1.21 to 1.33``, or nothing."""
    return "" if row.interval is None else " to ".join(map(format_number, row.interval))


def case_rows(comparison: RunComparison) -> list[ComparedRow]:
    """Return a row for each case in both runs: worse and broken ones first, then better ones."""
    labels = _labels_of(comparison)
    rows = [
        ComparedRow(pair, labels[pair.id], pair.headline, _disturbed(comparison, pair.id))
        for pair in comparison.cases
        if comparison.only is None or pair.headline is not None
    ]
    return sorted(rows, key=_order)


def metric_rows(comparison: RunComparison) -> list[ComparedRow]:
    """Return a row for each metric of each case in both runs, in the order of `case_rows`."""
    labels = _labels_of(comparison)
    rows = []
    for pair in sorted(comparison.cases, key=lambda pair: _ORDER.get(labels[pair.id], _LAST)):
        disturbed = _disturbed(comparison, pair.id)
        rows += [
            ComparedRow(
                pair,
                _metric_label(row, labels[pair.id]),
                row,
                disturbed,
            )
            for row in pair.rows
        ]
        if not pair.rows:
            rows.append(ComparedRow(pair, labels[pair.id], None))
    return rows


def _disturbed(comparison: RunComparison, case_id: str) -> tuple[bool, bool]:
    a, b = comparison.conditions
    return a.is_disturbed(case_id), b.is_disturbed(case_id)


def _order(row: ComparedRow) -> int:
    return _LAST if row.label is None else _ORDER.get(row.label, _LAST)


def _labels_of(comparison: RunComparison) -> dict[str, OutcomeLabel]:
    labels = {case.case: _label(case) for case in comparison.judgements}
    return {pair.id: labels.get(pair.id, OutcomeLabel.NOT_JUDGED) for pair in comparison.cases}


def _label(case: CaseJudgement) -> OutcomeLabel:
    if case.judgement is JudgementKind.BROKEN:
        return OutcomeLabel.BROKEN
    return _LABELS.get(case.outcome, OutcomeLabel.NOT_JUDGED)


def _metric_label(row: MetricRow, of_case: OutcomeLabel) -> OutcomeLabel | None:
    """Return the label of a metric; None if neither direction is better, or its case is broken."""
    if row.metric == HEADLINE:
        return of_case
    if row.better == "none" or of_case is OutcomeLabel.BROKEN:
        return None
    return _LABELS.get(row.outcome, OutcomeLabel.NOT_JUDGED)
