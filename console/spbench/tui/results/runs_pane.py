"""The runs at the left of the page, with their filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from spbench.errors import UsageError
from spbench.record.runs.history import RunSummary, select_runs
from spbench.tui.results.run_rows import COLUMNS, RunRows
from spbench.tui.widgets.line_table import LineTable


class RunsPane(Vertical):
    """The table of the runs that match the filter.

    Args:
        passed: Says of a run's id how many of its cases passed, where that is known.
        where: The folder of the runs, for the sentence that there are none.
    """

    HELP = """\
The recorded runs, the newest first; … marks those that still go on.
A filter's words stand in the id, the suite, the verdict or the host. suite:halo and host:node
look there alone, verdict:failed is that verdict, since:2026-11-01 takes runs from that day on.
Space marks a run as a; the one under the cursor, b, is compared with it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape",
            "leave_filter",
            "No filter",
            show=False,
            id="results.no-filter",
            tooltip="Show all runs again",
        ),
    ]
    DEFAULT_CSS = """
    RunsPane { width: 36%; min-width: 44; height: 1fr; border-subtitle-color: $text-muted; }
    RunsPane Input { display: none; }
    RunsPane Input.open { display: block; }
    RunsPane #message { display: none; height: auto; color: $text-muted; }
    RunsPane #message.told { display: block; }
    RunsPane #message.wrong { color: $text-error; }
    """

    class Changed(Message):
        """The filter shows other runs."""

    def __init__(self, passed: Callable[[str], str], where: str) -> None:
        super().__init__(classes="pane")
        self.border_title = "Runs"
        self._where = where
        self._rows = RunRows(passed)
        self._all: Sequence[RunSummary] = ()
        self._filter = ""
        self.shown: list[RunSummary] = []

    def compose(self) -> ComposeResult:
        yield Input(placeholder="words, suite:, verdict:, host:, since:", id="filter", compact=True)
        yield Static("", id="message", markup=False)
        yield LineTable(COLUMNS, self._rows, id="runs", empty="no runs here")

    @property
    def table(self) -> LineTable:
        """The table of the runs."""
        return self.query_one(LineTable)

    @property
    def marked(self) -> str | None:
        """The id of the run that is marked as a."""
        return self._rows.marked

    def mark(self, run_id: str | None) -> None:
        """Mark a run as a; None takes the mark away."""
        self._rows.marked = run_id
        self.table.update_rows()

    def highlighted(self) -> RunSummary | None:
        """Return the run under the cursor."""
        key = self.table.cursor_key
        return next((run for run in self.shown if run.id == key), None)

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Take the runs as they are now, the newest first."""
        self._all = runs
        self._select()

    def open_filter(self) -> None:
        """Let the reader write a filter."""
        line = self.query_one(Input)
        line.add_class("open")
        # Not `focus`, which waits: keys that came with this one are for the line already.
        self.screen.set_focus(line)

    def action_leave_filter(self) -> None:
        """Show all runs again, and go back to them."""
        line = self.query_one(Input)
        line.clear()
        line.remove_class("open")
        self.table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Select as the filter is written."""
        event.stop()
        self._select()
        self.post_message(self.Changed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back to the runs; an empty filter goes away."""
        event.stop()
        event.input.set_class(bool(event.value.strip()), "open")
        self.table.focus()

    def _select(self) -> None:
        """Show the runs that fit; a filter that is wrong is told, and the last that fit stays."""
        text, wrong = self.query_one(Input).value, ""
        try:
            self.shown = select_runs(self._all, text)
            self._filter = text if self.shown else self._filter
        except UsageError as error:
            wrong = str(error)
            self.shown = select_runs(self._all, self._filter)
        self._tell(wrong or self._why_none(text), bool(wrong))
        self._rows.show(self.shown, time.time())
        self.table.set_rows(self._rows)
        few = len(self.shown) < len(self._all)
        self.border_subtitle = f"{len(self.shown)} of {len(self._all)}" if few else ""

    def _why_none(self, text: str) -> str:
        if not self._all:
            return f"no run under {self._where} yet; start one on the Suites page"
        return "" if self.shown else f"the filter {text!r} fits none of the {len(self._all)} runs"

    def _tell(self, sentence: str, wrong: bool) -> None:
        message = self.query_one("#message", Static)
        message.update(sentence)
        message.set_class(bool(sentence), "told")
        message.set_class(wrong, "wrong")
