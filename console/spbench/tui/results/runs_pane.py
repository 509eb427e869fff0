"""The table of runs with its filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input, Static

from spbench.errors import UsageError
from spbench.record.number_formatting import format_duration
from spbench.record.runs.history import RunSummary, format_passed
from spbench.record.runs.selection import select_runs
from spbench.report.times import format_day_and_time
from spbench.tui.cells import format_moment, make_status_cell
from spbench.tui.panes import FilterPane, make_leave_filter_binding
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import RunStatus
from spbench_core.number_text import format_quantity

COLUMNS = (
    Column("mark", "", 1),
    Column("started", "started UTC", 11),
    Column("suite", "suite", 8, flexible=True),
    Column("verdict", "verdict", 12),
    Column("cases", "passed", 6, "right", drop_priority=1),
    Column("duration", "took", 10, "right", drop_priority=2),
    Column("host", "host", 10, drop_priority=3),
    Column("id", "id", 44, drop_priority=4),
)

PassedCounter = Callable[[str], tuple[int, int] | None]


class RunRows:
    """Rows of runs, the newest first.

    Args:
        count_passed: Returns the numbers of passed and of all cases of a run, given its id; None
            if they are unknown.
    """

    def __init__(self, count_passed: PassedCounter) -> None:
        self._count_passed = count_passed
        self._runs: dict[Hashable, RunSummary] = {}
        self._now = 0.0
        self.marked: str | None = None

    def show(self, runs: Sequence[RunSummary], now: float) -> None:
        """Set the runs and the current time, in seconds since the epoch."""
        self._runs = {run.id: run for run in runs}
        self._now = now

    def keys(self) -> Sequence[Hashable]:
        """Return the ids of the runs."""
        return list(self._runs)

    def version(self, key: Hashable) -> Hashable:
        """Return the values of the cells that can change."""
        run = self._runs[key]
        return (
            run.status,
            self._format_duration(run),
            self._count_passed(run.id),
            run.id == self.marked,
        )

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a run."""
        run = self._runs[key]
        return (
            TableCell("a" if run.id == self.marked else "", "accent"),
            format_moment(run.started, self._now),
            run.suite,
            make_status_cell(run.status),
            format_passed(self._count_passed(run.id)),
            self._format_duration(run),
            run.host or "",
            TableCell(run.id, "muted"),
        )

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a run."""
        run = self._runs[key]
        value_by_column = {
            "mark": run.id == self.marked,
            "started": run.started,
            "duration": run.duration_s,
            "cases": self._get_cases_sort_key(run),
        }
        return value_by_column[column] if column in value_by_column else getattr(run, column)

    def search_text(self, key: Hashable) -> str:
        """Return an empty text, since the pane filters the runs."""
        return ""

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


class RunsPane(FilterPane):
    """The table of the runs that match the filter.

    Args:
        count_passed: Returns the numbers of passed and of all cases of a run, given its id; None
            if they are unknown.
        home: The folder of the runs, for the message that there are none.
    """

    HELP = """\
The recorded runs, the newest first; … marks those that still go on.
A filter's words stand in the id, the suite, the verdict, the host or the note. suite:halo and
host:node look there alone, verdict:failed is that verdict, tag:rack2 that tag, and since:2026-11-01
takes runs from that day on. Space marks a run as a; the one under the cursor, b, is compared with
it. Below stand the exact times and the id of the run under the cursor, and what was noted of it."""
    BINDINGS: ClassVar[list[BindingType]] = [make_leave_filter_binding("results", "runs")]
    DEFAULT_CSS = """
    RunsPane { width: 36%; min-width: 44; height: 1fr; }
    RunsPane #message { display: none; height: auto; color: $text-muted; }
    RunsPane #message.visible { display: block; }
    RunsPane #message.wrong { color: $text-error; }
    RunsPane #exact-times { height: auto; max-height: 3; color: $text-muted; }
    """

    class FilterChanged(Message):
        """The filter selects other runs."""

    def __init__(self, count_passed: PassedCounter, home: str) -> None:
        super().__init__("Runs")
        self._home = home
        self._rows = RunRows(count_passed)
        self._all: Sequence[RunSummary] = ()
        self._filter = ""
        self.shown: list[RunSummary] = []

    def compose(self) -> ComposeResult:
        yield Input(
            placeholder="words, suite:, verdict:, host:, tag:, since:", id="filter", compact=True
        )
        yield Static("", id="message", markup=False)
        yield LineTable(COLUMNS, self._rows, id="runs", empty="no runs here")
        yield Static("", id="exact-times", markup=False)

    @property
    def marked(self) -> str | None:
        """The id of the marked run (run a); None if no run is marked."""
        return self._rows.marked

    def mark(self, run_id: str | None) -> None:
        """Mark a run as run a; None removes the mark."""
        self._rows.marked = run_id
        self.table.update_rows()

    def selected_run(self) -> RunSummary | None:
        """Return the run under the cursor; None if there is none."""
        key = self.table.cursor_key
        return next((run for run in self.shown if run.id == key), None)

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Show the current runs, the newest first."""
        self._all = runs
        self._select(self.query_one(Input).value)

    def show_filtered(self, text: str) -> None:
        """Show the runs that match, and post `FilterChanged`."""
        self._select(text)
        self.post_message(self.FilterChanged())

    def show_exact_times(self) -> None:
        """Show exact times, id and note of the run under the cursor."""
        run = self.selected_run()
        self.query_one("#exact-times", Static).update(format_exact_times(run) if run else "")

    def _select(self, text: str) -> None:
        """Show the runs that match; an invalid filter shows an error and has no effect."""
        error_message = ""
        try:
            self.shown = select_runs(self._all, text)
            self._filter = text if self.shown else self._filter
        except UsageError as error:
            error_message = str(error)
            self.shown = select_runs(self._all, self._filter)
        self._show_message(error_message or self._explain_empty(text), bool(error_message))
        self._rows.show(self.shown, time.time())
        self.table.set_rows(self._rows)
        self.show_exact_times()
        is_filtered = len(self.shown) < len(self._all)
        self.border_subtitle = f"{len(self.shown)} of {len(self._all)}" if is_filtered else ""

    def _explain_empty(self, text: str) -> str:
        if not self._all:
            return f"no run under {self._home} yet; start one on the Suites page"
        return (
            ""
            if self.shown
            else f"the filter {text!r} fits none of the {format_quantity(len(self._all), 'run')}"
        )

    def _show_message(self, text: str, is_error: bool) -> None:
        message = self.query_one("#message", Static)
        message.update(text)
        message.set_class(bool(text), "visible")
        message.set_class(is_error, "wrong")


def format_exact_times(run: RunSummary) -> str:
    """Return the id, the exact times and the note of a run."""
    duration = "" if run.duration_s is None else f", {run.duration_s:.3f} s"
    lines = [run.id, format_day_and_time(run.started) + duration, str(run.note)]
    return "\n".join(filter(None, lines))
