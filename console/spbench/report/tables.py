"""The tables of runs and comparisons, cell by cell, as every view shows them."""

from __future__ import annotations

from collections.abc import Container, Iterator

from spbench.record.number_formatting import number
from spbench.report.overall import overall
from spbench.report.recorded import RecordedRun
from spbench.report.run_comparison import CasePair, JudgementKind, MetricRow, RunComparison

RUN_COLUMNS = ("case", "status", "metric", "value", "unit", "p95", "p99", "n", "limit")
COMPARISON_COLUMNS = ("case", "metric", "a", "b", "unit", "b/a", "95 %", "outcome", "note")
FIGURE_COLUMNS = frozenset({"value", "p95", "p99", "n", "limit", "a", "b", "b/a"})
"""The columns of both tables that hold numbers."""


def run_rows(run: RecordedRun) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `RUN_COLUMNS`: one row a metric; a case without any has one row."""
    for case in run.cases.values():
        for name, metric in case.metrics.items():
            limit = case.limits.get(name)
            figures = (metric.p95, metric.p99) if metric.n > 1 else (None, None)
            yield (
                *(case.id, case.status, name, number(metric.value), _unit(metric.unit)),
                *map(_figure, figures),
                str(metric.n),
                _figure(limit.value if limit else None),
            )
        if not case.metrics:
            yield (case.id, case.status, *[""] * (len(RUN_COLUMNS) - 2))


def comparison_rows(comparison: RunComparison) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `COMPARISON_COLUMNS`: one row a metric of the cases in both runs."""
    for pair in comparison.cases:
        for row in pair.rows:
            yield _cells(pair, row)
        if not pair.rows:
            blank = [""] * (len(COMPARISON_COLUMNS) - 2)
            yield (pair.id, *blank, "; ".join(pair.remarks))


def comparison_remarks(comparison: RunComparison, *, brief: bool = False) -> list[str]:
    """Return the remarks below the table: the tally, unjudged and broken cases, the means.

    With ``brief`` unjudged cases that have a row are left out, since the row has the reason.
    """
    remarks = [f"b against a: {comparison.tally}."]
    explained = {pair.id for pair in comparison.cases} if brief else set()
    remarks += undecided_lines(comparison, explained)
    if together := overall(comparison):
        remarks.append(together.sentence)
    judged = {case.case for case in comparison.judgements}
    if left_out := [id_ for id_ in comparison.only_a if id_ not in judged]:
        remarks.append(f"Not selected in b: {', '.join(left_out)}.")
    return remarks


def undecided_lines(
    comparison: RunComparison, explained: Container[str] = frozenset()
) -> Iterator[str]:
    """Yield the cases that are broken or unjudged, those with the same reason in one line.

    Unjudged cases that are ``explained`` elsewhere are left out.
    """
    for judgement in (JudgementKind.BROKEN, JudgementKind.UNJUDGED):
        by_reason: dict[str | None, list[str]] = {}
        for case in comparison.judged_as(judgement):
            if judgement is JudgementKind.BROKEN or case.case not in explained:
                by_reason.setdefault(case.reason, []).append(case.case)
        for reason, cases in by_reason.items():
            yield f"{judgement}: {', '.join(cases)}: {reason}"


def _cells(pair: CasePair, row: MetricRow) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{number(row.ratio)}x"
    note = "; ".join(notes(pair, row))
    figures = (_figure(row.a), _figure(row.b), _unit(row.unit), ratio)
    return (pair.id, row.metric, *figures, interval(row), row.outcome or "", note)


def interval(row: MetricRow) -> str:
    """Return the ratio's interval as ``0.98 to 1.03``, or nothing."""
    return "" if row.interval is None else f"{row.interval[0]:.2f} to {row.interval[1]:.2f}"


def notes(pair: CasePair, row: MetricRow) -> list[str]:
    """Return the notes on a row: its reason, what widened its interval, and its case's remarks."""
    past = f"as wide as {row.past} earlier runs differ" if row.past else None
    reason = row.reason or ""
    return [note for note in (reason, past, *(r for r in pair.remarks if r not in reason)) if note]


def _figure(value: float | None) -> str:
    return "" if value is None else number(value)


def _unit(unit: str) -> str:
    return "" if unit == "1" else unit
