"""The dialog that asks for a place to jump to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from spbench.tui.dialogs import Modal
from spbench.tui.guide.places import Place, find_places
from spbench.tui.widgets.fixed_rows import FixedRow, FixedRows
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

COLUMNS = (
    Column("kind", "kind", 5),
    Column("name", "name", 20, flexible=True),
    Column("location", "where", 24, drop_priority=1),
)


class JumpDialog(Modal[Place | None]):
    """A field and the places that match it; returns a place, or None after Escape.

    Args:
        known: The places that are known at once.
        read: Reads the other places; called in a thread.
    """

    HELP: ClassVar[str] = """\
Type words, or letters in their order, to find a suite, run, host or case. Enter goes there: a suite
is opened, a run is selected on the Results page, a host on the Hosts page, and a case on the Suites
or Run page that shows it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="jump.leave", tooltip="Stay here"),
        Binding("up", "move(-1)", "Up", id="jump.up", tooltip="The place above"),
        Binding("down", "move(1)", "Down", id="jump.down", tooltip="The place below"),
        Binding("pageup", "page(-1)", "Page up", id="jump.page-up", tooltip="A page up"),
        Binding("pagedown", "page(1)", "Page down", id="jump.page-down", tooltip="A page down"),
    ]
    DEFAULT_CSS = """
    JumpDialog > Vertical { width: 100; height: 90%; max-height: 34; }
    JumpDialog LineTable { height: 1fr; margin-top: 1; }
    """

    def __init__(self, known: Sequence[Place], read: Callable[[], Sequence[Place]]) -> None:
        super().__init__()
        self._known = known
        self._read = read
        self._places: Sequence[Place] = known
        self._found: Sequence[Place] = ()
        self._is_reading = True

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Jump to a suite, run, host or case"
            yield Input(placeholder="type to find", id="place", compact=True)
            table = LineTable(COLUMNS, FixedRows(COLUMNS), id="places", empty="no match")
            table.can_focus = False
            yield table
            yield Static("", id="count", classes="note", markup=False)

    def on_mount(self) -> None:
        """Show what is known, and read the rest."""
        self._find("")
        self.run_worker(self._read_places(), group="read")

    async def _read_places(self) -> None:
        places = await asyncio.to_thread(self._read)
        self._is_reading = False
        if self.is_mounted and self.app.is_running:
            self._places = [*places, *self._known]
            self._find(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the places that match."""
        self._find(event.value)

    def _find(self, text: str) -> None:
        self._found = find_places(self._places, text)
        table = self.query_one(LineTable)
        table.set_rows(FixedRows(COLUMNS, [_make_row(place) for place in self._found]))
        table.action_first()
        count = f"{len(self._found):,} of {len(self._places):,}"
        reading = ", reading more" if self._is_reading else ""
        self.query_one("#count", Static).update(
            f"enter goes there, escape cancels  ({count}{reading})"
        )

    def on_input_submitted(self) -> None:
        """Return the place under the cursor."""
        self._choose()

    def on_line_table_row_selected(self) -> None:
        """Return the place of a double click."""
        self._choose()

    def _choose(self) -> None:
        key = self.query_one(LineTable).cursor_key
        if isinstance(key, int) and self._found:
            self.dismiss(self._found[key])

    def action_move(self, rows: int) -> None:
        """Move the cursor by a number of rows."""
        self.query_one(LineTable).action_move(rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a number of pages."""
        self.query_one(LineTable).action_page(pages)

    def action_leave(self) -> None:
        """Leave without a place."""
        self.dismiss(None)


def _make_row(place: Place) -> FixedRow:
    cells = (TableCell(place.kind.value, "muted"), place.name, TableCell(place.location, "muted"))
    return FixedRow(cells, (place.kind.value, place.name, place.location))
