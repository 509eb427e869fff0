"""The runs at the left of the page, with their filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input, Static

from spbench.errors import UsageError
from spbench.record.runs.history import RunSummary, select_runs
from spbench.report.times import format_day_and_time
from spbench.tui.panes import FilterPane, leave_filter_key
from spbench.tui.results.run_rows import COLUMNS, RunRows
from spbench.tui.widgets.line_table import LineTable
from spbench_core.quantities import format_quantity


class RunsPane(FilterPane):
    """The table of the runs that match the filter.

    Args:
        passed: Says of a run's id how many of its cases passed, where that is known.
        where: The folder of the runs, for the sentence that there are none.
    """

    HELP = """\
The recorded runs, the newest first; … marks those that still go on.
A filter's words stand in the id, the suite, the verdict, the host or the note. suite:halo and
host:node look there alone, verdict:failed is that verdict, tag:rack2 that tag, and since:2026-11-01
takes runs from that day on. Space marks a run as a; the one under the cursor, b, is compared with
it. Below stand the exact times and the id of the run under the cursor, and what was noted of it."""
    BINDINGS: ClassVar[list[BindingType]] = [leave_filter_key("results", "runs")]
    DEFAULT_CSS = """
    RunsPane { width: 36%; min-width: 44; height: 1fr; }
    RunsPane #message { display: none; height: auto; color: $text-muted; }
    RunsPane #message.told { display: block; }
    RunsPane #message.wrong { color: $text-error; }
    RunsPane #exact { height: auto; max-height: 3; color: $text-muted; }
    """

    class FilterChanged(Message):
        """The filter shows other runs."""

    def __init__(self, passed: Callable[[str], str], where: str) -> None:
        super().__init__("Runs")
        self._where = where
        self._rows = RunRows(passed)
        self._all: Sequence[RunSummary] = ()
        self._filter = ""
        self.shown: list[RunSummary] = []

    def compose(self) -> ComposeResult:
        yield Input(
            placeholder="words, suite:, verdict:, host:, tag:, since:", id="filter", compact=True
        )
        yield Static("", id="message", markup=False)
        yield LineTable(COLUMNS, self._rows, id="runs", empty="no runs here")
        yield Static("", id="exact", markup=False)

    @property
    def marked(self) -> str | None:
        """The id of the run that is marked as a."""
        return self._rows.marked

    def mark(self, run_id: str | None) -> None:
        """Mark a run as a; None takes the mark away."""
        self._rows.marked = run_id
        self.table.update_rows()

    def selected_run(self) -> RunSummary | None:
        """Return the run under the cursor."""
        key = self.table.cursor_key
        return next((run for run in self.shown if run.id == key), None)

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Take the runs as they are now, the newest first."""
        self._all = runs
        self._select(self.query_one(Input).value)

    def show_filtered(self, text: str) -> None:
        """Show the runs that fit, and say so."""
        self._select(text)
        self.post_message(self.FilterChanged())

    def show_exact_times(self) -> None:
        """Show the exact times and the id of the run under the cursor, and what was noted of it."""
        run = self.selected_run()
        self.query_one("#exact", Static).update(format_exact_times(run) if run else "")

    def _select(self, text: str) -> None:
        """Show the runs that fit; a filter that is wrong is told, and the last that fit stays."""
        wrong = ""
        try:
            self.shown = select_runs(self._all, text)
            self._filter = text if self.shown else self._filter
        except UsageError as error:
            wrong = str(error)
            self.shown = select_runs(self._all, self._filter)
        self._tell(wrong or self._why_none(text), bool(wrong))
        self._rows.show(self.shown, time.time())
        self.table.set_rows(self._rows)
        self.show_exact_times()
        few = len(self.shown) < len(self._all)
        self.border_subtitle = f"{len(self.shown)} of {len(self._all)}" if few else ""

    def _why_none(self, text: str) -> str:
        if not self._all:
            return f"no run under {self._where} yet; start one on the Suites page"
        return (
            ""
            if self.shown
            else f"the filter {text!r} fits none of the {format_quantity(len(self._all), 'run')}"
        )

    def _tell(self, sentence: str, wrong: bool) -> None:
        message = self.query_one("#message", Static)
        message.update(sentence)
        message.set_class(bool(sentence), "told")
        message.set_class(wrong, "wrong")


def format_exact_times(run: RunSummary) -> str:
    """Return a run's exact times and id, and what was noted of it."""
    took = "" if run.duration_s is None else f", {run.duration_s:.3f} s"
    lines = [run.id, format_day_and_time(run.started) + took, str(run.note)]
    return "\n".join(filter(None, lines))
