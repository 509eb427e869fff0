"""The table of runs with its filter."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from spbench.errors import UsageError
from spbench.record.runs.history import RunSummary
from spbench.record.runs.marks import MarksFormat, RunMarks, find_marks
from spbench.record.runs.selection import select_runs
from spbench.report.recorded import RecordedRun
from spbench.report.run_details import Fact, list_run_facts
from spbench.tui.panes import FilterPane, make_leave_filter_binding
from spbench.tui.results.compared_sides import Repetition
from spbench.tui.results.fact_table import (
    build_fact_table,
    format_exact_times,
    list_previous_run,
)
from spbench.tui.results.fitted_columns import fit_columns
from spbench.tui.results.library import RunLibrary
from spbench.tui.results.run_rows import COLUMNS, MARKS, SIGNS, RunRows, name_starts_today
from spbench.tui.results.swept_columns import SCROLL_BAR
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, lay_out
from spbench_core.number_text import format_quantity

MIN_WIDTH = 50
"""The least width of the pane next to the results."""
MIN_VIEWS_WIDTH = 88
"""The width that the results keep if the runs need more than the least width."""
MAX_WIDTH = 200
FRAME_WIDTH = 4
"""The columns of the border and padding."""
_MIN_SUITE_WIDTH = 8
"""Cells of a suite that stay if it is cut, so that the passed cases are visible."""
_SPARE_COLUMNS = ("duration", "host")
"""The columns for which no suite is cut."""
_MAX_TABLE_SHARE = 0.5
"""Largest share of a tall pane for the runs above the details."""


class RunsPane(FilterPane):
    """The table of the runs that match the filter.

    Args:
        library: The runs, and their folder, which an empty list names.

    Attributes:
        shown: The runs that match the filter, the newest first.
        marks: The marks of all runs.
        baselines: The names of baselines by the runs that they were made of.
    """

    HELP = """\
The recorded runs, the newest first; … is one that is still running. A cursor on the newest run
moves to each newer one.
marks: ! fault: made with a planted fault. ≠ other machine, ≠ other versions: the hosts, or the MPI
library or torch, differ from those of the newest run of the suite. batch job: of `spbench collect`.
baseline: one was made of it. A narrow table has the signs only: ! ≠, □ batch job, ◆ baseline.
Times are in UTC; those of today have no date.
A run is shown if its id, suite, status, host, marks or note have all words of the filter.
suite:halo and host:node search only there. status:failed, tag:rack2, mark:fault, mark:machine,
mark:versions and mark:batch select exactly these, and since:2026-11-01 runs from that day on. Space
marks a run, to compare it with the one under the cursor. With a second mark, c compares the marked
runs. Of two compared runs, a is always the older one and b the newer one. Below are facts on the
run under the cursor."""
    BINDINGS: ClassVar[list[BindingType]] = [make_leave_filter_binding("results", "runs")]
    DEFAULT_CSS = """
    RunsPane { width: 38%; min-width: 50; height: 1fr; }
    RunsPane #message { display: none; height: auto; color: $text-muted; }
    RunsPane #message.visible { display: block; }
    RunsPane #message.wrong { color: $text-error; }
    RunsPane #details { height: auto; max-height: 3; color: $text-muted; }
    """

    class FilterChanged(Message):
        """The filter selects other runs."""

    def __init__(self, library: RunLibrary) -> None:
        super().__init__("Runs")
        self._library = library
        self._rows = RunRows(library.count_passed, library.describe_status)
        self._all: Sequence[RunSummary] = ()
        self._filter = ""
        self._loaded: RecordedRun | None = None
        self._width: int | None = None
        self._awaited: list[Repetition] = []
        self._replaced: dict[str, str] = {}  # new runs by the sides that they repeat
        self._repeated: dict[str, Repetition] = {}  # by the runs that R started
        self._chosen: tuple[str, ...] = ()
        self._is_mark_own = False  # set by the page, not by the user
        self._versions: list[Hashable] = []
        self.shown: list[RunSummary] = []
        self.marks: RunMarks = {}
        self.baselines: Mapping[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Input(
            placeholder="words, suite:, status:, host:, tag:, mark:, since:",
            id="filter",
            compact=True,
        )
        yield Static("", id="message", markup=False)
        yield LineTable(COLUMNS, self._rows, id="runs", empty="no runs here")
        yield Static("", id="details", markup=False)

    @property
    def marked(self) -> tuple[str, ...]:
        """The ids of the marked runs, at most two, the older one first."""
        return self._rows.marked

    @property
    def sides(self) -> tuple[str, ...]:
        """The ids of runs a and b, which are marked or under the cursor.

        The older run is a. If the cursor is on the only marked run, it is that run only. Empty
        without a mark.
        """
        run = self.selected_run()
        chosen = self.marked
        if len(chosen) == 1 and run is not None and run.id not in chosen:
            chosen = (*chosen, run.id)
        return self._order_sides(chosen)

    def _order_sides(self, chosen: Collection[str]) -> tuple[str, ...]:
        return tuple(run.id for run in reversed(self._all) if run.id in chosen)

    def toggle_mark(self, run_id: str) -> None:
        """Mark a run, or remove its mark; a third mark replaces that of run a."""
        if run_id in self.marked:
            self._rows.marked = tuple(other for other in self.marked if other != run_id)
        else:
            self._rows.marked = self._order_sides({*self.marked[-1:], run_id})
        self._is_mark_own = False
        self._update_sides()

    def clear_marks(self) -> None:
        """Remove the marks of runs for a comparison."""
        self._rows.marked = ()
        self._update_sides()

    def drop_own_mark(self) -> bool:
        """Remove a mark that the user did not set; return whether there was one."""
        is_own = self._is_mark_own and bool(self.marked)
        if is_own:
            self.clear_marks()
        return is_own

    def show_sides(self, chosen: tuple[str, ...]) -> None:
        """Show which runs are a and b.

        Args:
            chosen: The ids of runs a and b of the view if no other run is marked; an empty id for
                a baseline.
        """
        self._chosen = chosen
        self._update_sides()

    def _update_sides(self) -> None:
        sides = self.sides
        self._rows.sides = sides if len(sides) > 1 else self._chosen or sides
        self.table.update_rows()

    def update_rows(self) -> None:
        """Show statuses and numbers of cases that are known now."""
        versions = [self._rows.version(run.id) for run in self.shown]
        if versions != self._versions:
            self._versions = versions
            self._fit_columns()
        self.table.update_rows()

    def await_runs(self, repetitions: Sequence[Repetition]) -> None:
        """Let the next new runs be the sides of the comparison that are run again."""
        self._awaited = list(repetitions)
        self._replaced = {}

    def compare_run(self, run_id: str, compared_side: str | None) -> None:
        """Choose a run, and the other side of the comparison for which it was started."""
        self._mark_other(compared_side)
        self.table.move_to(run_id)

    def selected_run(self) -> RunSummary | None:
        """Return the run under the cursor; None if there is none."""
        key = self.table.cursor_key
        return next((run for run in self.shown if run.id == key), None)

    def show_runs(
        self, runs: Sequence[RunSummary], baselines: Mapping[str, str], watched: str | None
    ) -> None:
        """Show the current runs, the newest first; a cursor on the newest run follows.

        The cursor also goes to a new run that the Run page watches.
        """
        ids = {run.id for run in self._all}
        new_runs = [run.id for run in runs if run.id not in ids]
        follows = self._is_on_newest() or (watched is not None and watched in new_runs[:1])
        started = list(zip(reversed(new_runs), self._awaited, strict=False))
        self._awaited = self._awaited[len(started) :]
        self._repeated |= dict(started)
        self._all = runs
        self.baselines = baselines
        self._rows.marked = self._order_sides(self.marked)
        for run_id, repetition in started:
            self._mark_other(self._replaced.get(repetition.other or "", repetition.other))
            self._replaced[repetition.folder.id] = run_id
        self._select(self.query_one(Input).value)
        newest = self.shown[0].id if self.shown else None
        if newest is not None and (follows or started):
            self.table.move_to(newest)
        self._update_sides()

    def _mark_other(self, side: str | None) -> None:
        """Mark only the other side of a comparison, unless it is a baseline."""
        self._rows.marked = self._order_sides({side}) if side is not None else ()
        self._is_mark_own = True

    def describe_origin(self) -> str:
        """Return the run that run b repeats as text; empty unless R started it."""
        run_id = self.sides[-1] if len(self.sides) > 1 else ""
        repetition = self._repeated.get(run_id)
        if repetition is None:
            return ""
        ids = (repetition.folder.id, run_id)
        starts = {run.id: run.started for run in self._all if run.id in ids}
        if len(starts) < len(ids):
            return ""  # one was deleted
        names = name_starts_today(starts, time.time())
        original, repeated = (names[run_id] for run_id in ids)
        launches = f" with {repetition.launches} launches" if repetition.launches else ""
        return f"{original} measured again{launches} ({repeated})"

    def _is_on_newest(self) -> bool:
        """Return whether the cursor is on the newest run of the unsorted list."""
        is_natural = self.table.sorted_by == (None, False)
        return is_natural and bool(self.shown) and self.table.cursor_key == self.shown[0].id

    def show_filtered(self, text: str) -> None:
        """Show the runs that match, and post `FilterChanged`."""
        self._select(text)
        self.post_message(self.FilterChanged())

    def show_details(self, loaded: RecordedRun | None) -> None:
        """Show facts about the run under the cursor.

        Args:
            loaded: The run, if it is loaded; without it, only facts of the list are shown.
        """
        self._loaded = loaded
        summary = self.selected_run()
        content: str | Table = ""
        if summary is not None:
            run = RecordedRun(summary, {})
            if loaded is not None and loaded.summary.id == summary.id:
                run = replace(loaded, summary=summary)  # the list has the newest note
            marks = self._rows.get_marks(summary.id)
            facts = list_run_facts(run, marks)
            baseline = self.baselines.get(summary.id)
            if self.screen.has_class("-tall"):
                previous = list_previous_run(self._all, summary, self._library.describe_status)
                if baseline is not None:
                    previous.append(Fact("baseline", baseline))
                content = build_fact_table([Fact("run", summary.id), *facts, *previous])
            else:
                names = [] if baseline is None else [f"baseline {baseline}"]
                content = format_exact_times(summary, [*marks, *names])
        self.query_one("#details", Static).update(content)

    def on_resize(self) -> None:
        """Choose the columns that fit the new width."""
        self._fit_columns()
        self.show_details(self._loaded)
        # A hidden text keeps its old height until it is visible again.
        self.call_after_refresh(self.show_details, self._loaded)

    def _fit_columns(self) -> None:
        """Show the columns that fit, with shorter marks and suites if some would not."""
        width = self.table.size.width - SCROLL_BAR
        if width <= 0:
            return
        rows = self._rows
        columns = [column for column in COLUMNS if column is not MARKS or rows.have_marks()]
        rows.marks_format = MarksFormat.FULL
        rows.suite_width = None
        self._fit_width(columns)
        for marks_format in MarksFormat:
            rows.marks_format = marks_format
            if marks_format is MarksFormat.SIGNS:
                signs = replace(SIGNS, width=rows.measure_signs())
                columns = [signs if column is MARKS else column for column in columns]
                self._cut_suites(columns, width)
            fitted = fit_columns(columns, rows, width)
            is_cut = any(column.flexible for column in fitted)
            shown = {placed.column.key for placed in lay_out(fitted, width).placed}
            # The host goes before the words of the marks, which the results do not repeat.
            if not is_cut and {column.key for column in fitted} - shown <= {"host"}:
                break
        self.table.set_rows(rows, fitted)
        self._fit_height()
        self._show_subtitle()

    def _show_subtitle(self) -> None:
        """Show the number of runs that a filter leaves, and the meanings of signs."""
        is_filtered = len(self.shown) < len(self._all)
        count = f"{len(self.shown)} of {len(self._all)}" if is_filtered else ""
        self.border_subtitle = Content(
            "  ".join(filter(None, (self._rows.describe_signs(), count)))
        )

    def _cut_suites(self, columns: Sequence[Column], width: int) -> None:
        """Cut the suites if the table lacks cells for the numbers of passed cases."""
        needed = [column for column in columns if column.key not in _SPARE_COLUMNS]
        layout = lay_out(fit_columns(needed, self._rows, MAX_WIDTH), 0, show_all=True)
        missing_cells = layout.width + 1 - width  # one for the mark of columns that are left out
        suite_width = next(placed.width for placed in layout.placed if placed.column.key == "suite")
        if missing_cells > 0:
            self._rows.suite_width = max(_MIN_SUITE_WIDTH, suite_width - missing_cells)

    def _fit_width(self, columns: Sequence[Column]) -> None:
        """Be as wide as the table next to the results, as far as these keep enough."""
        width = None
        if self.screen.has_class("-side-by-side"):
            table = lay_out(fit_columns(columns, self._rows, MAX_WIDTH), MAX_WIDTH)
            room = self.screen.size.width - MIN_VIEWS_WIDTH
            width = max(MIN_WIDTH, min(table.width + SCROLL_BAR + FRAME_WIDTH, room))
        if width != self._width:
            self._width = width
            self.styles.width = width

    def _fit_height(self) -> None:
        """Let the details follow the last run if they are next to the results."""
        screen = self.screen
        is_fitted = screen.has_class("-tall") and screen.has_class("-side-by-side")
        max_lines = int(_MAX_TABLE_SHARE * self.size.height)
        height = min(1 + len(self.shown), max_lines) if is_fitted and max_lines else "1fr"
        self.table.styles.height = height

    def _select(self, text: str) -> None:
        """Show the runs that match; an invalid filter shows an error and has no effect."""
        error_message = ""
        self.marks = find_marks(self._all)
        try:
            self.shown = select_runs(self._all, text, self.marks)
            self._filter = text if self.shown else self._filter
        except UsageError as error:
            error_message = str(error)
            self.shown = select_runs(self._all, self._filter, self.marks)
        self._show_message(error_message or self._explain_empty(text), bool(error_message))
        self._rows.show(self.shown, time.time(), self.marks, self.baselines)
        self._fit_columns()
        self.show_details(self._loaded)

    def _explain_empty(self, text: str) -> str:
        if not self._all:
            return f"no run under {self._library.home} yet; start one on the Suites page"
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
