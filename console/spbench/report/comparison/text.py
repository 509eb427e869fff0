"""A comparison as text: warnings, the two runs, a table, and notes below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spbench.record.number_formatting import format_status, replace_controls
from spbench.record.runs.history import RunSummary
from spbench.report.comparison.model import RunComparison
from spbench.report.comparison.notes import (
    comparison_notes,
    comparison_summary,
    comparison_warnings,
    table_notes,
)
from spbench.report.comparison.rows import (
    CASE_COLUMNS,
    DIFFERENT,
    METRIC_COLUMNS,
    ComparedRow,
    case_rows,
    metric_rows,
)
from spbench.report.text_tables import (
    align_columns,
    cut_middle,
    fits_table,
    render_table,
    wrap_text,
)
from spbench.report.times import format_day_and_time
from spbench_core.events.statuses import RunStatus

_INDENT = "  "
_MAX_ROWS = 20
"""The number of cases up to which a gate has a row for each."""


def comparison_lines(
    comparison: RunComparison,
    width: int,
    *,
    shown: RunComparison | None = None,
    all_metrics: bool = False,
) -> Iterator[str]:
    """Yield a comparison as lines of at most ``width`` characters.

    Args:
        comparison: The comparison that the notes are about.
        width: The columns of the terminal.
        shown: The comparison with the rows to show; by default the same.
        all_metrics: Whether there is a row for each metric instead of each case.
    """
    yield from warning_lines(comparison, width)
    yield from _generate_heading(comparison, width)
    table_of_rows = table_lines(shown or comparison, width, all_metrics=all_metrics)
    if table_of_rows:
        yield ""
        yield from table_of_rows
    yield ""
    yield from wrap_text(f"{comparison_summary(comparison)}.", width)
    notes = comparison_notes(comparison)
    if table_of_rows:
        notes += table_notes(comparison, all_metrics=all_metrics)
    for note in notes:
        yield from wrap_text(note, width)


def gate_lines(comparison: RunComparison, width: int) -> Iterator[str]:
    """Yield the findings of a gate: rows of cases, and notes.

    With more than `_MAX_ROWS` cases, only those that differ or are broken have a row. The others
    are counted. The summary is not included.
    """
    yield from warning_lines(comparison, width)
    yield from wrap_text(f"a: baseline {comparison.a.id}, b: run {comparison.b.id}", width)
    rows = case_rows(comparison)
    shown = [row for row in rows if row.label in DIFFERENT or len(rows) <= _MAX_ROWS]
    hidden_counts = Counter(row.label.word for row in rows if row.label and row not in shown)
    notes = comparison_notes(comparison)
    if shown:
        yield from render_table(CASE_COLUMNS, [row.case_cells() for row in shown], width)
        notes += table_notes(comparison)
    if hidden_counts:
        hidden_text = ", ".join(f"{count} {word}" for word, count in hidden_counts.items())
        yield from wrap_text(f"Not shown: {hidden_text}.", width)
    for note in notes:
        yield from wrap_text(note, width)


def warning_lines(comparison: RunComparison, width: int) -> Iterator[str]:
    """Yield the warnings of a comparison."""
    for warning in comparison_warnings(comparison):
        yield from wrap_text(f"warning: {warning}", width)


def table_lines(comparison: RunComparison, width: int, *, all_metrics: bool = False) -> list[str]:
    """Return the table of a comparison with its heading; empty if it has no row."""
    if all_metrics:
        return _render_metric_table(metric_rows(comparison), width)
    cases = [row.case_cells() for row in case_rows(comparison)]
    return render_table(CASE_COLUMNS, cases, width) if cases else []


def _render_metric_table(rows: Sequence[ComparedRow], width: int) -> list[str]:
    """Return a table with a row for each metric.

    If shortened ids would not be unique, each case id is on a separate line above its metrics.
    """
    cells = [row.metric_cells() for row in rows]
    if not cells:
        return []
    if fits_table(METRIC_COLUMNS, cells, width):
        return render_table(METRIC_COLUMNS, cells, width)
    heading, *lines = _align_without_ids(cells, width - len(_INDENT))
    table_lines_with_ids = [f"{_INDENT}{heading}"]
    case_id = None
    for row, line in zip(cells, lines, strict=True):
        if row[0] != case_id:
            case_id = row[0]
            table_lines_with_ids.append(cut_middle(replace_controls(case_id), width))
        table_lines_with_ids.append(f"{_INDENT}{line}")
    return table_lines_with_ids


def _align_without_ids(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a table of metrics without ids, and without intervals if it is too wide."""
    titles = tuple(column.title for column in METRIC_COLUMNS)
    for with_optional in (True, False):
        columns = [
            (index, column)
            for index, column in enumerate(METRIC_COLUMNS)
            if not column.ids and (with_optional or not column.optional)
        ]
        cells = [[replace_controls(row[index]) for index, _ in columns] for row in (titles, *rows)]
        right_aligned = {index for index, (_, column) in enumerate(columns) if column.right}
        lines = align_columns(cells, right_aligned)
        if max(map(len, lines)) <= width:
            break
    return lines


def _generate_heading(comparison: RunComparison, width: int) -> Iterator[str]:
    """Yield a line on each run, without its start time if the line is too long."""
    rows = [_make_heading_cells("a", comparison.a), _make_heading_cells("b", comparison.b)]
    lines = align_columns(rows)
    if max(map(len, lines)) > width:
        lines = align_columns([(*row[:2], *row[3:]) for row in rows])
    for line in lines:
        yield from wrap_text(line, width, indent="   ")


def _make_heading_cells(name: str, run: RunSummary) -> tuple[str, ...]:
    started = "" if run.started is None else format_day_and_time(run.started)
    if run.status == RunStatus.BASELINE:
        return (name, run.id, started, "baseline", run.host or "")
    return (name, run.id, started, format_status(run.status, run.status_text), run.host or "")
