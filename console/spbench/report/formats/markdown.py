"""Markdown for a job's summary: the verdict, what did not pass and why, the cases' figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from spbench.record.number_formatting import GLYPHS, NOISY, strip_controls
from spbench.report.export import NUMBER_COLUMNS, RUN_COLUMNS, escape_markdown, run_rows
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

MOST_BYTES = 1_000_000
"""GitHub drops a step's summary above 1 MiB as a whole."""
_COLUMNS = ("case", "verdict", "time", "p95", "n", "reference", "efficiency")


def render_markdown(run: RecordedRun) -> str:
    """Return a run as Markdown; tables are cut, and say so, where it would grow too long."""
    verdict = run.summary.verdict
    suite = escape_markdown(run.summary.suite)
    parts = [
        f"## {_sign(verdict, verdict)}: {suite}",
        _head(run),
        *(f"**Error:** {escape_markdown(error)}" for error in run.errors),
        *_listed(run),
        *map(escape_markdown, run.findings),
        _table(_COLUMNS, map(_row, sort_by_urgency(run)), MOST_BYTES // 4),
        "\n".join(f"- {escape_markdown(line)}" for line in LEGEND),
        *_scaling(run),
        f"<details><summary>All metrics</summary>\n\n{_all_metrics(run)}\n\n</details>",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _head(run: RecordedRun) -> str:
    summary = run.summary
    told = [f"{format_tally(run)}: run {_code(summary.id)}", format_day_and_time(summary.started)]
    told += [f"on {_code(summary.host)}"] if summary.host else []
    told += [f"{summary.duration_s:.1f} s"] if summary.duration_s is not None else []
    return ", ".join(told)


def _listed(run: RecordedRun) -> Iterator[str]:
    """What did not pass, each with its sentence: a list, which is cut as tables are."""
    room = MOST_BYTES // 4
    cases = list_bad_cases(run)
    lines = (
        f"- **{case.status}** {_code(case.id)}: {escape_markdown(explain_status(case))}"
        for case in cases
    )
    kept = list(_within(lines, room))
    if kept:
        yield "\n".join([*kept, *_left_out(len(cases) - len(kept))])


def _row(case: CasePart) -> tuple[str, ...]:
    found = choose_headline(case)
    count = "" if found is None else str(found[1].n)
    time, p95, reference, efficiency = map(escape_markdown, time_cells(case))
    return (_code(case.id), _verdict(case), time, p95, count, reference, efficiency)


def _scaling(run: RecordedRun) -> Iterator[str]:
    """The efficiency of cases over numbers of ranks, and where it stops to pay."""
    if found := compute_scalings(run):
        rows = ((_code(row[0]), *map(escape_markdown, row[1:])) for row in scaling_rows(found))
        yield _table(SCALING_COLUMNS, rows, MOST_BYTES // 8)
        yield from map(escape_markdown, scaling_remarks(found))


def _all_metrics(run: RecordedRun) -> str:
    rows = ((_code(row[0]), *map(escape_markdown, row[1:])) for row in run_rows(run))
    return _table(RUN_COLUMNS, rows, MOST_BYTES // 4)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], room: int) -> str:
    """Return a table of at most so many bytes, with the number of rows left out below it."""
    rule = ["---:" if column in NUMBER_COLUMNS else "---" for column in columns]
    lines = [f"| {' | '.join(row)} |" for row in (columns, rule, *rows)]
    kept = list(_within(lines, room))
    more = "\n".join(_left_out(len(lines) - len(kept)))
    return "\n".join([*kept, *([f"\n{more}"] if more else [])])


def _within(lines: Iterable[str], room: int) -> Iterator[str]:
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            return
        yield line


def _left_out(count: int) -> Iterator[str]:
    if count:
        yield f"... and {count} more, left out here for their length; CSV and HTML have them."


def _sign(status: str, word: str) -> str:
    return f"{GLYPHS.get(status, '')} {word}".strip()


def _verdict(case: CasePart) -> str:
    return _sign(case.status, case.shown_status) + f" {NOISY} noisy" * bool(case.noisy)


def _code(text: str) -> str:
    """Return a name as it is, in letters of one width; with bars it is text, for tables' sake."""
    name = strip_controls(" ".join(text.split()))
    if "|" in name or not name:
        return escape_markdown(name)
    fence = "`" * (max(map(len, re.findall("`+", name)), default=0) + 1)
    pad = " " if len(fence) > 1 else ""
    return f"{fence}{pad}{name}{pad}{fence}"
