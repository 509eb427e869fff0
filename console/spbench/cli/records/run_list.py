"""The table of ``spbench results list``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spbench.cli.text_layout import cut_line
from spbench.record.number_formatting import format_duration
from spbench.record.runs.history import RunSummary, format_passed
from spbench.record.runs.marks import RunMark, format_marks
from spbench.record.runs.notes import NO_NOTE
from spbench.report.text_tables import align_columns
from spbench.report.times import format_day_and_time

_WIDE = 120
"""The least columns for which a list of runs shows their times."""
_RUN_COLUMNS = ("run", "started", "status", "passed", "took", "suite", "host", "mark", "note")
_OPTIONAL = ("mark", "note")
"""The columns that are shown if a run has a value there."""
_DISPENSABLE = ("host", "took")
"""The columns that a narrow terminal leaves out of a list of runs, in this order."""
_MIN_NOTE = 16
"""The least columns of a note; other columns are left out for them."""


def format_runs(
    runs: Sequence[RunSummary],
    marks_by_run: Mapping[str, Sequence[RunMark]],
    width: int | None,
) -> Iterator[str]:
    """Yield a heading and a line for each run, cut to a width; None: not cut."""
    if not runs:
        return
    cells_by_title: dict[str, list[str]] = {title: [] for title in _RUN_COLUMNS}
    for run in runs:
        note = "" if run.note == NO_NOTE else str(run.note)
        cells = (
            run.id,
            format_day_and_time(run.started),
            run.status_text,
            format_passed(run.count_passed()),
            "" if run.duration_s is None else format_duration(run.duration_s),
            run.suite,
            run.host or "",
            format_marks(marks_by_run.get(run.id, ())),
            " ".join(filter(None, (note, run.unreadable))),
        )
        for title, cell in zip(_RUN_COLUMNS, cells, strict=True):
            cells_by_title[title].append(cell)
    for title in _OPTIONAL:
        if not any(cells_by_title[title]):
            del cells_by_title[title]
    if width is not None and width < _WIDE:
        del cells_by_title["started"]  # an id begins with the time
    for title in _DISPENSABLE:
        if width is not None and _compute_needed_width(cells_by_title) > width:
            del cells_by_title[title]
    rows = [tuple(cells_by_title), *zip(*cells_by_title.values(), strict=True)]
    right_aligned = {
        list(cells_by_title).index(title) for title in ("passed", "took") if title in cells_by_title
    }
    yield from (cut_line(line, width) for line in align_columns(rows, right_aligned))


def _compute_needed_width(cells_by_title: Mapping[str, Sequence[str]]) -> int:
    """Return the width of a list with whole cells and the beginning of notes."""
    width_by_title = {
        title: max(map(len, (title, *cells))) for title, cells in cells_by_title.items()
    }
    if "note" in width_by_title:
        width_by_title["note"] = min(width_by_title["note"], _MIN_NOTE)
    return sum(width_by_title.values()) + 2 * (len(width_by_title) - 1)
