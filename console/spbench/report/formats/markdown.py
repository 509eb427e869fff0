"""Markdown for the summary of a CI job: status, failed cases and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from spbench.record.number_formatting import NOISY, format_status, replace_controls
from spbench.report.export import NUMBER_TITLES, RUN_COLUMNS, escape_markdown, run_rows
from spbench.report.formats.case_text import (
    LEGEND,
    choose_headline,
    explain_status,
    format_tally,
    list_bad_cases,
    sort_by_urgency,
    time_cells,
)
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.scaling import SCALING_COLUMNS, compute_scalings, scaling_remarks, scaling_rows
from spbench.report.times import format_day_and_time

MAX_BYTES = 1_000_000
"""The limit of the text, because GitHub drops a summary above 1 MiB completely."""
_COLUMNS = ("case", "verdict", "time", "p95", "n", "reference", "efficiency")


def render_markdown(run: RecordedRun, *, max_bytes: int = MAX_BYTES) -> str:
    """Return a run as Markdown of at most ``max_bytes``; long tables are cut."""
    status = run.summary.status
    suite = escape_markdown(run.summary.suite)
    all_metrics = _render_all_metrics(run, max_bytes // 4)
    blocks = [
        f"## {format_status(status, run.summary.status_text)}: {suite}",
        _render_head(run),
        *(f"**Error:** {escape_markdown(error)}" for error in run.errors),
        *_render_bad_cases(run, max_bytes // 4),
        *map(escape_markdown, run.findings),
        _render_table(_COLUMNS, map(_make_case_cells, sort_by_urgency(run)), max_bytes // 4),
        "\n".join(f"- {escape_markdown(line)}" for line in LEGEND),
        *_render_scaling(run, max_bytes // 8),
        f"<details><summary>All metrics</summary>\n\n{all_metrics}\n\n</details>",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _render_head(run: RecordedRun) -> str:
    summary = run.summary
    facts = [
        f"{format_tally(run)}: run {_format_code(summary.id)}",
        format_day_and_time(summary.started),
    ]
    if summary.host:
        facts.append(f"on {_format_code(summary.host)}")
    if summary.duration_s is not None:
        facts.append(f"{summary.duration_s:.1f} s")
    return ", ".join(facts)


def _render_bad_cases(run: RecordedRun, max_bytes: int) -> Iterator[str]:
    """Yield one list of the cases that did not pass, with reasons, if there are any.

    A long list is cut, with a note.
    """
    cases = list_bad_cases(run)
    lines = (
        f"- **{case.status}** {_format_code(case.id)}: {escape_markdown(explain_status(case))}"
        for case in cases
    )
    shown = list(_cut_lines(lines, max_bytes))
    if shown:
        yield "\n".join([*shown, *_note_omitted(len(cases) - len(shown))])


def _make_case_cells(case: CasePart) -> tuple[str, ...]:
    headline = choose_headline(case)
    count = "" if headline is None else str(headline[1].n)
    time, p95, reference, efficiency = map(escape_markdown, time_cells(case))
    return (
        _format_code(case.id),
        _format_case_status(case),
        time,
        p95,
        count,
        reference,
        efficiency,
    )


def _render_scaling(run: RecordedRun, max_bytes: int) -> Iterator[str]:
    """Yield the table of scaling and its remarks, if the run has any."""
    if scalings := compute_scalings(run):
        rows = (
            (_format_code(row[0]), *map(escape_markdown, row[1:])) for row in scaling_rows(scalings)
        )
        yield _render_table(SCALING_COLUMNS, rows, max_bytes)
        yield from map(escape_markdown, scaling_remarks(scalings))


def _render_all_metrics(run: RecordedRun, max_bytes: int) -> str:
    rows = ((_format_code(row[0]), *map(escape_markdown, row[1:])) for row in run_rows(run))
    return _render_table(RUN_COLUMNS, rows, max_bytes)


def _render_table(columns: Sequence[str], rows: Iterable[Sequence[str]], max_bytes: int) -> str:
    """Return a table, cut at a size, with the number of omitted rows below it."""
    alignment_row = ["---:" if column in NUMBER_TITLES else "---" for column in columns]
    lines = [f"| {' | '.join(row)} |" for row in (columns, alignment_row, *rows)]
    shown = list(_cut_lines(lines, max_bytes))
    note = "\n".join(_note_omitted(len(lines) - len(shown)))
    return "\n".join([*shown, *([f"\n{note}"] if note else [])])


def _cut_lines(lines: Iterable[str], max_bytes: int) -> Iterator[str]:
    for line in lines:
        max_bytes -= len(line.encode()) + 1
        if max_bytes < 0:
            return
        yield line


def _note_omitted(count: int) -> Iterator[str]:
    if count:
        yield f"... and {count} more, left out here for their length; CSV and HTML have them."


def _format_case_status(case: CasePart) -> str:
    status = format_status(case.status, case.status_text)
    return f"{status} {NOISY} noisy" if case.noisy else status


def _format_code(text: str) -> str:
    """Return a name as inline code, or escaped if a bar in it would break a table."""
    name = replace_controls(" ".join(text.split()))
    if "|" in name or not name:
        return escape_markdown(name)
    fence = "`" * (max(map(len, re.findall("`+", name)), default=0) + 1)
    pad = " " if len(fence) > 1 else ""
    return f"{fence}{pad}{name}{pad}{fence}"
