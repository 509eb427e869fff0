"""The cases that a suite expands to, and the command of the one that is chosen."""

from __future__ import annotations

import asyncio

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer

from spbench.suites.case import Case
from spbench.tui.suites.case_rows import SuiteCaseRows
from spbench.tui.suites.cases_table import CasesTable
from spbench.tui.suites.command import NO_CASE, CommandPane
from spbench.tui.suites.reading import ParsedSuite, estimate_parsed, find_command
from spbench.tui.widgets.line_table import LineTable

COMMAND_DELAY = 0.1
"""Seconds that a case is chosen for until its command is looked for."""


class CasesPane(Vertical):
    """Cases above, a command below."""

    DEFAULT_CSS = """
    CasesPane > #cases-frame { height: 1fr; }
    CasesPane > CommandPane { height: auto; min-height: 5; max-height: 50%; }
    """

    class CaseSelected(Message):
        """A case was chosen here; ``opened``: its line is to be edited."""

        def __init__(self, line: int, opened: bool) -> None:
            super().__init__()
            self.line = line
            self.opened = opened

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._reading: ParsedSuite | None = None
        self._pause: Timer | None = None
        self._placed: object = None  # the row that the page, not the user, went to

    def compose(self) -> ComposeResult:
        yield CasesTable(id="cases-frame")
        yield CommandPane(id="command", classes="pane")

    @property
    def cases(self) -> CasesTable:
        """The table of the cases."""
        return self.query_one(CasesTable)

    @property
    def case(self) -> Case | None:
        """The case under the cursor."""
        return self.cases.case

    @property
    def _rows(self) -> SuiteCaseRows:
        return self.cases.rows

    @property
    def line(self) -> int | None:
        """The line of the case under the cursor; None where the text has changed beneath it."""
        case = self.case
        return self._rows.line(case) if case is not None and self._rows.current else None

    def show(self, reading: ParsedSuite, line: int) -> None:
        """Show the cases of a text; where it has errors, those of before stay, and say so."""
        if reading.problems:
            rows = SuiteCaseRows(self._rows.cases, self._rows.spans, current=False)
        else:
            rows = SuiteCaseRows(reading.cases, reading.spans)
            self._reading = reading
            self._estimate(reading)
        self.cases.show(rows)
        self.select_line(line)
        self._show_command()

    def clear(self) -> None:
        """Show no cases: another file was opened."""
        self._reading = None
        self.cases.clear()
        self.query_one(CommandPane).show(NO_CASE)

    def select_line(self, line: int) -> None:
        """Choose the first case shown of the entry at a line, unless one of its cases is chosen."""
        table = self.cases.table
        there = self._rows.list_ids_on_line(line)
        if there and table.cursor_key not in there:
            shown = set(table.keys_shown)
            first = next((key for key in there if key in shown), None)
            if first is not None:
                table.move_to(first)
        self._placed = table.cursor_key

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the command of a case, and its line where the user went to it."""
        event.stop()
        self._show_command_soon()
        if event.key != self._placed:
            self._tell(opened=False)
        self._placed = None

    def on_line_table_row_selected(self, event: LineTable.RowSelected) -> None:
        """Edit a case's line."""
        event.stop()
        self._tell(opened=True)

    def _tell(self, opened: bool) -> None:
        if self.case is not None:
            self.post_message(self.CaseSelected(self._rows.line(self.case), opened))

    def _show_command_soon(self) -> None:
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(COMMAND_DELAY, self._show_command)

    def _show_command(self) -> None:
        case = self.case
        reading = self._reading
        if case is not None and reading is not None:
            self._command(reading, case)

    @work(exclusive=True, group="estimate", description="the duration of the suite")
    async def _estimate(self, reading: ParsedSuite) -> None:
        estimate = await asyncio.to_thread(estimate_parsed, reading)
        # The console may have ended meanwhile, and another text may have been read.
        if reading is self._reading and self.app.is_running:
            self.query_one(CasesTable).show_estimate(estimate)

    # Textual would describe it by its arguments: to print a suite of 2,000 cases takes 0.2 s.
    @work(exclusive=True, group="command", description="the launch command of a case")
    async def _command(self, reading: ParsedSuite, case: Case) -> None:
        command = await asyncio.to_thread(find_command, reading, case.id)
        if self.app.is_running:
            self.query_one(CommandPane).show(command, case.id)
