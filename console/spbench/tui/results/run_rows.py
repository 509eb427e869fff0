"""The rows of runs in a table, with unique names by their start times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from spbench.record.number_formatting import format_duration
from spbench.record.planted_faults import FaultOutcome
from spbench.record.runs.history import RunSummary, format_passed
from spbench.record.runs.marks import MarksFormat, RunMark, RunMarks, format_marks
from spbench.report.text_tables import cut_middle
from spbench.tui.cells import format_day, format_exact_moment, format_moment, make_status_cell
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import RunStatus

MARKS = Column("marks", "marks", 5)
SIGNS = Column("marks", "", 1)
"""The column of marks if they are signs only."""
_BASELINE_SIGN = "◆"
COLUMNS = (
    Column("mark", "", 1),
    Column("started", "started", 7),
    Column("suite", "suite", 5, flexible=True),
    Column("status", "status", 9),
    MARKS,
    Column("cases", "passed", 6, "right", drop_priority=2),
    Column("duration", "took", 10, "right", drop_priority=3),
    Column("host", "host", 10, drop_priority=4),
)

_ID_TAIL = 4
"""The random characters at the end of a run's id."""
PassedCounter = Callable[[str], tuple[int, int] | None]


class RunRows:
    """Rows of runs, the newest first.

    Args:
        count_passed: Returns the numbers of passed and of all cases of a run, given its id; None
            if they are unknown.
        describe_status: Returns the status of a run as text.

    Attributes:
        marked: The ids of the runs marked for a comparison, at most two.
        sides: The ids of runs a and b as they are shown.
        suite_width: The most cells of a suite, which is cut in the middle; None for all.
    """

    def __init__(
        self,
        count_passed: PassedCounter,
        describe_status: Callable[[RunSummary], str] = lambda run: run.status,
    ) -> None:
        self._count_passed = count_passed
        self._describe_status = describe_status
        self._runs: dict[Hashable, RunSummary] = {}
        self._now = 0.0
        self._names: Mapping[str, str] = {}
        self._marks: RunMarks = {}
        self._baselines: Mapping[str, str] = {}
        self.marks_format = MarksFormat.FULL
        self.marked: tuple[str, ...] = ()
        self.sides: tuple[str, ...] = ()
        self.suite_width: int | None = None
        self._has_marks = False

    def show(
        self,
        runs: Sequence[RunSummary],
        now: float,
        marks: RunMarks | None = None,
        baselines: Mapping[str, str] | None = None,
    ) -> None:
        """Set the runs, the current time, and the marks and baselines by run."""
        self._runs = {run.id: run for run in runs}
        self._now = now
        self._names = name_starts_today({run.id: run.started for run in runs}, now)
        self._marks = marks or {}
        self._baselines = baselines or {}
        self._has_marks = any(
            self._list_shown_marks(run) or run.id in self._baselines for run in runs
        )

    def have_marks(self) -> bool:
        """Return whether a run has a mark, so that each row has a cell for them."""
        return self._has_marks

    def get_marks(self, run_id: str) -> Sequence[RunMark]:
        """Return the marks of a run."""
        return self._marks.get(run_id, ())

    def _list_shown_marks(self, run: RunSummary) -> list[RunMark]:
        """Return the marks of a run without that of a fault which its status names."""
        is_named = self._describe_status(run) == FaultOutcome.FOUND
        return [mark for mark in self.get_marks(run.id) if not (is_named and mark is RunMark.FAULT)]

    def _shorten_suite(self, suite: str) -> str:
        width = self.suite_width
        return suite if width is None else cut_middle(suite, width, width // 3)

    def measure_signs(self) -> int:
        """Return the cells of the marks of a run as signs, at most."""
        widths = (
            len(self._list_shown_marks(run)) + (run.id in self._baselines)
            for run in self._runs.values()
        )
        return max(widths, default=0)

    def describe_signs(self) -> str:
        """Return the meanings of the signs of marks; empty if the marks are words."""
        if self.marks_format is not MarksFormat.SIGNS:
            return ""
        shown = {mark for run in self._runs.values() for mark in self._list_shown_marks(run)}
        texts = {mark: mark.removeprefix(mark.sign).strip() for mark in RunMark if mark in shown}
        meanings = [f"{mark.sign} {text}" for mark, text in texts.items()]
        if any(run.id in self._baselines for run in self._runs.values()):
            meanings.append(f"{_BASELINE_SIGN} baseline")
        return "  ".join(meanings)

    def keys(self) -> Sequence[Hashable]:
        """Return the ids of the runs."""
        return list(self._runs)

    def version(self, key: Hashable) -> Hashable:
        """Return the values of the cells that can change."""
        run = self._runs[key]
        return (
            self._describe_status(run),
            self._names[run.id],
            self._format_duration(run),
            self._count_passed(run.id),
            self._get_side(run),
            self._marks.get(run.id),
            self._baselines.get(run.id),
            self.marks_format,
            self.suite_width,
        )

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a run."""
        run = self._runs[key]
        return (
            TableCell(self._get_side(run), "accent"),
            self._names[run.id],
            self._shorten_suite(run.suite),
            make_status_cell(run.status, self._describe_status(run)),
            *self._make_marks_cells(run),
            format_passed(self._count_passed(run.id)),
            self._format_duration(run),
            run.host or "",
        )

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a run."""
        run = self._runs[key]
        value_by_column = {
            "mark": self._get_side(run) or None,
            "marks": format_marks(self._list_shown_marks(run)) or None,
            "started": run.started,
            "duration": run.duration_s,
            "cases": self._get_cases_sort_key(run),
        }
        return value_by_column[column] if column in value_by_column else getattr(run, column)

    def search_text(self, key: Hashable) -> str:
        """Return an empty text, since the pane filters the runs."""
        return ""

    def _make_marks_cells(self, run: RunSummary) -> list[TableCell]:
        """Return the cell of the marks, if the rows have one."""
        if not self._has_marks:
            return []
        shown_marks = self._list_shown_marks(run)
        marks = format_marks(shown_marks, self.marks_format)
        names = self._baselines.get(run.id)
        if self.marks_format is MarksFormat.SIGNS:
            text = marks if names is None else marks + _BASELINE_SIGN
        else:
            is_full = self.marks_format is MarksFormat.FULL
            baseline = "" if names is None else f"baseline {names if is_full else ''}".rstrip()
            text = ", ".join(filter(None, (marks, baseline)))
        marks_differ = any(mark is not RunMark.BATCH for mark in shown_marks)
        style = "slow" if marks_differ else "accent"
        return [TableCell(text, style if text else "")]  # an empty cell is not underlined

    def _get_side(self, run: RunSummary) -> str:
        """Return ``a`` or ``b`` for a run chosen for a comparison, or nothing."""
        return "ab"[self.sides.index(run.id)] if run.id in self.sides else ""

    def _get_cases_sort_key(self, run: RunSummary) -> tuple[int, int] | None:
        """Return a key that sorts runs with the most failed cases first."""
        counts = self._count_passed(run.id)
        if counts is None:
            return None
        passed, total = counts
        return passed - total, total

    def _format_duration(self, run: RunSummary) -> str:
        if run.status == RunStatus.RUNNING and run.started is not None:
            return format_duration(max(0.0, self._now - run.started))
        return "" if run.duration_s is None else format_duration(run.duration_s)


def name_starts_today(starts: Mapping[str, float | None], now: float) -> dict[str, str]:
    """Return names of runs by their ids, without the date of today."""
    today = f"{format_day(now, now)} "
    return {run: name.removeprefix(today) for run, name in name_starts(starts, now).items()}


def name_starts(starts: Mapping[str, float | None], now: float) -> dict[str, str]:
    """Return names of runs by their ids: ``11-21 14:36``, with more for equal minutes.

    All runs of a day have their seconds if two of them start in the same minute. Those of the same
    second have the end of the id instead.

    Args:
        starts: The start times by id, in seconds since the epoch.
        now: The current time, in seconds since the epoch.
    """
    minutes = {run: format_moment(start, now) for run, start in starts.items()}
    name_counts = Counter(minutes.values())
    days = {name.split()[0] for name, count in name_counts.items() if count > 1}
    names = {
        run: format_exact_moment(starts[run], now) if name.split()[0] in days else name
        for run, name in minutes.items()
    }
    return _lengthen_equal(names, lambda run: f"{minutes[run]} {run[-_ID_TAIL:]}")


def _lengthen_equal(names: Mapping[str, str], make_longer: Callable[[str], str]) -> dict[str, str]:
    """Return the names, with longer ones instead of those that are not unique."""
    count_by_name = Counter(names.values())
    return {
        run: make_longer(run) if count_by_name[name] > 1 else name for run, name in names.items()
    }
