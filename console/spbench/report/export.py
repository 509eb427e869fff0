"""Recorded runs and comparisons as CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spbench.errors import UsageError, did_you_mean
from spbench.record.efficiency import format_metric
from spbench.record.metric_names import describe_separation, format_folded_name
from spbench.record.number_formatting import replace_controls, replace_line_controls
from spbench.record.runs.history import RunSummary
from spbench.report.build import build_cases, build_document
from spbench.report.comparison.model import CasePair, MetricRow, RunComparison, compute_overall
from spbench.report.comparison.notes import (
    comparison_notes,
    comparison_summary,
    comparison_warnings,
    table_notes,
)
from spbench.report.comparison.rows import CASE_COLUMNS, METRIC_COLUMNS, case_rows, metric_rows
from spbench.report.document import ReportDocument
from spbench.report.recorded import RecordedRun, read_document
from spbench.report.records import metric_records
from spbench.report.text_tables import TextColumn
from spbench.report.times import format_day_and_time, format_timestamp

EXPORT_FORMATS = ("csv", "json", "md")

_FORMULA = ("=", "+", "-", "@")
"""The characters with which formulas of spreadsheets begin."""
# An underscore within a word, for example in time_ms, has no meaning in Markdown.
_MARKS = re.compile(r"([\\`*\[\]<>#~|&!$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z]))")
RUN_COLUMNS = ("case", "status", "metric", "median", "p95", "p99", "n", "reference", "note")
NUMBER_TITLES = frozenset({"time", "median", "p95", "p99", "n", "reference", "efficiency"})
"""The titles of columns of numbers."""


def export_text(run: RecordedRun, format_name: str) -> str:
    """Return a run as ``csv`` (a row for each case and metric), ``json`` or ``md``.

    JSON is the run's report. If there is none, it is built from the events.

    Raises:
        UsageError: The format is unknown, or the run has no events.
    """
    _check_format(format_name)
    if format_name == "json":
        return "".join(_load_document(run).chunks())
    if format_name == "csv":
        return _render_csv(metric_records(run))
    head = _describe_run(run.summary)
    return _render_run_markdown(head, RUN_COLUMNS, run_rows(run), run.findings)


def export_comparison(
    comparison: RunComparison, format_name: str, unfiltered: RunComparison | None = None
) -> str:
    """Return a comparison as text: ``csv``, ``json`` or ``md``.

    Args:
        comparison: The comparison with the rows to show.
        format_name: The format.
        unfiltered: The comparison for the notes; by default the same.

    Raises:
        UsageError: The format is unknown.
    """
    _check_format(format_name)
    if format_name == "json":
        return _render_json(comparison_object(comparison))
    if format_name == "csv":
        return _render_csv(_build_comparison_records(comparison))
    return _render_comparison_markdown(comparison, unfiltered or comparison)


def _render_comparison_markdown(comparison: RunComparison, unfiltered: RunComparison) -> str:
    """Return a row for each case, the notes, and all metrics in a folded section."""
    paragraphs = [
        *(f"**Warning:** {escape_markdown(text)}" for text in comparison_warnings(comparison)),
        escape_markdown(f"a: {_describe_run(comparison.a)}; b: {_describe_run(comparison.b)}"),
        _render_columns_markdown(CASE_COLUMNS, (row.case_cells() for row in case_rows(comparison))),
        escape_markdown(f"{comparison_summary(unfiltered)}."),
        *map(escape_markdown, comparison_notes(unfiltered)),
        *map(escape_markdown, table_notes(unfiltered, all_metrics=True)),
    ]
    metrics = [row.metric_cells() for row in metric_rows(comparison)]
    if metrics:
        table = _render_columns_markdown(METRIC_COLUMNS, metrics)
        paragraphs.append(f"<details><summary>All metrics</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(paragraphs) + "\n"


def summary_object(summary: RunSummary) -> dict[str, Any]:
    """Return the JSON object of a run's summary; times are UTC, RFC 3339."""
    return {
        "id": summary.id,
        "suite": summary.suite,
        "file": summary.file,
        "started": format_timestamp(summary.started),
        "finished": format_timestamp(summary.finished),
        "duration_s": summary.duration_s,
        "verdict": summary.status,
        "exit_code": summary.exit_code,
        "argv": list(summary.argv),
        "host": summary.host,
        "counts": dict(summary.counts) if summary.counts else None,
        "folder": str(summary.folder.path),
        "note": summary.note.text,
        "tags": list(summary.note.tags),
        "unreadable": summary.unreadable,
    }


def _check_format(format_name: str) -> None:
    if format_name not in EXPORT_FORMATS:
        hint = did_you_mean(format_name, EXPORT_FORMATS)
        raise UsageError(
            f"there is no format {format_name!r}{hint}; there are {', '.join(EXPORT_FORMATS)}"
        )


def _load_document(run: RecordedRun) -> ReportDocument:
    folder = run.summary.folder
    document = read_document(folder)
    if document is not None:
        return document
    state = folder.replay()
    if state.run is None:
        raise UsageError(f"nothing was recorded of run {run.summary.id}: {folder.events} is empty")
    return build_document(state, build_cases(state)[0])


def _build_comparison_records(comparison: RunComparison) -> list[dict[str, Any]]:
    columns = ("metric", "unit", "better", "a", "b", "ratio", "low", "high", "outcome")
    empty_cells = dict.fromkeys(columns)
    records: list[dict[str, Any]] = []
    for pair in comparison.cases:
        for row in pair.rows:
            low, high = row.interval or (None, None)
            fields = asdict(row) | {"low": low, "high": high}
            cells = {column: fields[column] for column in columns}
            records.append(
                {"case": pair.id, **cells, "note": "; ".join(_list_row_notes(pair, row))}
            )
        if not pair.rows:
            records.append({"case": pair.id, **empty_cells, "note": "; ".join(pair.remarks)})
    for run, case_ids in (("a", comparison.only_a), ("b", comparison.only_b)):
        records += [
            {"case": case_id, **empty_cells, "note": f"only in {run}"} for case_id in case_ids
        ]
    return records


def _list_row_notes(pair: CasePair, row: MetricRow) -> list[str]:
    """Return the notes on a row: its reason, its interval's origin, and remarks."""
    interval_origin = f"as wide as {row.past} earlier runs differ" if row.past else None
    reason = row.reason or ""
    remarks = (remark for remark in pair.remarks if remark not in reason)
    return [note for note in (reason, interval_origin, *remarks) if note]


def comparison_object(comparison: RunComparison) -> dict[str, Any]:
    """Return the JSON object of a comparison."""
    overall = compute_overall(comparison)
    return {
        "a": summary_object(comparison.a),
        "b": summary_object(comparison.b),
        "cases": [asdict(pair) for pair in comparison.cases],
        "only_a": list(comparison.only_a),
        "only_b": list(comparison.only_b),
        "judgements": [asdict(case) for case in comparison.judgements],
        "overall": asdict(overall) if overall else None,
    }


def _describe_run(summary: RunSummary) -> str:
    host = f" on {summary.host}" if summary.host else ""
    return f"{summary.id}, {summary.status}, {format_day_and_time(summary.started)}{host}"


def _render_json(document: object) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _render_csv(records: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if records:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_escape_csv_cell, records[0]))
        writer.writerows(map(_escape_csv_cell, record.values()) for record in records)
    return text.getvalue()


def _escape_csv_cell(cell: Any) -> Any:
    """Return a cell that is safe in spreadsheets (formulas) and terminals (controls)."""
    if not isinstance(cell, str):
        return cell
    text = replace_line_controls(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _render_run_markdown(
    head: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    remarks: Iterable[str],
) -> str:
    is_number_column = [column in NUMBER_TITLES for column in columns]
    table = _render_markdown_table(columns, is_number_column, rows)
    below = [f"\n{escape_markdown(remark)}" for remark in remarks]
    return "\n".join([f"{escape_markdown(head)}\n", table, *below]) + "\n"


def _render_columns_markdown(columns: Sequence[TextColumn], rows: Iterable[Sequence[str]]) -> str:
    titles = [column.title for column in columns]
    return _render_markdown_table(titles, [column.right for column in columns], rows)


def _render_markdown_table(
    titles: Sequence[str], is_right_aligned: Sequence[bool], rows: Iterable[Sequence[str]]
) -> str:
    alignment_row = ["---:" if is_right else "---" for is_right in is_right_aligned]
    cells = [titles, alignment_row, *(map(escape_markdown, row) for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def escape_markdown(text: str) -> str:
    """Return a text in one line, with Markdown's special characters escaped."""
    return _MARKS.sub(r"\\\1", replace_controls(" ".join(text.split())))


def run_rows(run: RecordedRun) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `RUN_COLUMNS` for each metric, at least once per case."""
    for case in run.cases.values():
        for name, metric in case.metrics.items():
            limit = case.limits.get(name)
            percentiles = (metric.p95, metric.p99) if metric.n > 1 else (None, None)
            reference = limit.value if limit else None
            median_text, p95_text, p99_text, reference_text = (
                ""
                if value is None
                else format_metric(value, metric.unit, name, disturbed=case.disturbed)
                for value in (metric.value, *percentiles, reference)
            )
            title = format_folded_name(name, metric.unit)
            note = describe_separation(case.benchmark, name)
            yield (
                case.id,
                case.status,
                title,
                median_text,
                p95_text,
                p99_text,
                str(metric.n),
                reference_text,
                note,
            )
        if not case.metrics:
            yield (case.id, case.status, *[""] * (len(RUN_COLUMNS) - 2))
