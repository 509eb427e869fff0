"""The dialog that asks for a destination to jump to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from spbench.tui.dialogs import Modal
from spbench.tui.guide.destinations import Destination, DestinationKind, find_destinations
from spbench.tui.widgets.fixed_rows import FixedRow, FixedRows
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench.tui.widgets.text import shorten_path

_KIND_WIDTH = max(len(kind.value) for kind in DestinationKind)
_MIN_LOCATION_WIDTH = 24
MAX_ROWS = 500
"""The number of matches that are listed; more words find the others."""


class JumpDialog(Modal[Destination | None]):
    """A field and the matching destinations; returns one, or None after Escape.

    Args:
        cases: The cases that the pages show.
        read: Reads the other destinations; called in a thread.
        text: The words to start with.
        kind: The kind of destination to list; None for all.
    """

    HELP: ClassVar[str] = """\
Type words, or letters in their order, to find a suite, run, host or case. Enter goes there: a suite
is opened, a run is selected on the Results page and a host on the Hosts page. A case in a suite is
selected on the Suites page, and a case of a run on the Results page, or on the Run page if it shows
the run."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="jump.leave", tooltip="Stay here"),
        Binding("up", "move(-1)", "Up", id="jump.up", tooltip="The destination above"),
        Binding("down", "move(1)", "Down", id="jump.down", tooltip="The destination below"),
        Binding("pageup", "page(-1)", "Page up", id="jump.page-up", tooltip="A page up"),
        Binding("pagedown", "page(1)", "Page down", id="jump.page-down", tooltip="A page down"),
        # With priority, since the text field would move its cursor; Ctrl+A and Ctrl+E still do.
        Binding("home", "first", "First", id="jump.first", priority=True),
        Binding("end", "last", "Last", id="jump.last", priority=True),
    ]
    DEFAULT_CSS = """
    JumpDialog LineTable { height: 1fr; margin-top: 1; }
    """

    def __init__(
        self,
        cases: Sequence[Destination],
        read: Callable[[], Sequence[Destination]],
        text: str = "",
        kind: DestinationKind | None = None,
    ) -> None:
        super().__init__()
        self._cases = cases
        self._read = read
        self._text = text
        self._kind = kind
        self._destinations: Sequence[Destination] = self._select_kind(cases)
        self._matches: Sequence[Destination] = ()
        self._is_reading = True

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            names = "suite, run, host or case" if self._kind is None else self._kind.value
            frame.border_title = f"Jump to a {names}"
            yield Input(self._text, placeholder="type to find", id="destination", compact=True)
            columns = _make_columns(_MIN_LOCATION_WIDTH)
            table = LineTable(columns, FixedRows(columns), id="destinations", empty="no match")
            table.can_focus = False
            yield table

    def on_mount(self) -> None:
        """Show the cases, and read the other destinations."""
        self._find(self._text)
        self._read_destinations()

    def on_resize(self) -> None:
        """Show as much of each destination as the new width allows."""
        self.call_after_refresh(self._show_rows)

    @work(group="read")
    async def _read_destinations(self) -> None:
        destinations = await asyncio.to_thread(self._read)
        self._is_reading = False
        self._destinations = self._select_kind([*destinations, *self._cases])
        # A cursor that was moved keeps its destination; otherwise the best match is under it.
        keep = self._get_choice() if self.query_one(LineTable).cursor_key != 0 else None
        self._find(self.query_one(Input).value, keep)

    def _select_kind(self, destinations: Sequence[Destination]) -> Sequence[Destination]:
        if self._kind is None:
            return destinations
        return [destination for destination in destinations if destination.kind is self._kind]

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the destinations that match."""
        self._find(event.value)

    def _find(self, text: str, keep: Destination | None = None) -> None:
        """Show the destinations that match, with the cursor on ``keep`` or the first one."""
        self._matches = find_destinations(self._destinations, text)
        shown = self._show_rows()
        table = self.query_one(LineTable)
        if keep in shown:
            table.move_to(shown.index(keep))
        else:
            table.action_first()
        if len(shown) < len(self._matches):
            count = f"first {len(shown):,} of {len(self._matches):,}"
        else:
            count = f"{len(self._matches):,} of {len(self._destinations):,}"
        reading = ", reading more" if self._is_reading else ""
        frame = self.query_one(Vertical)
        frame.border_subtitle = f"{count}{reading}  Enter goes there  Esc cancels"

    def _show_rows(self) -> Sequence[Destination]:
        """Show the matches in the present width; return those that are listed."""
        shown = self._matches[:MAX_ROWS]
        table = self.query_one(LineTable)
        width = max(_MIN_LOCATION_WIDTH, (table.size.width - _KIND_WIDTH) // 2)
        columns = _make_columns(width)
        wanted_words = self.query_one(Input).value.lower().split()
        rows = [_make_row(destination, width, wanted_words) for destination in shown]
        table.set_rows(FixedRows(columns, rows), columns)
        return shown

    def on_input_submitted(self) -> None:
        """Return the destination under the cursor."""
        self._choose()

    def on_line_table_row_selected(self) -> None:
        """Return the destination of a double click."""
        self._choose()

    def _choose(self) -> None:
        choice = self._get_choice()
        if choice is not None:
            self.dismiss(choice)

    def _get_choice(self) -> Destination | None:
        """Return the destination under the cursor; None without a match."""
        key = self.query_one(LineTable).cursor_key
        return self._matches[key] if isinstance(key, int) and self._matches else None

    def action_move(self, rows: int) -> None:
        """Move the cursor by a number of rows."""
        self.query_one(LineTable).action_move(rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a number of pages."""
        self.query_one(LineTable).action_page(pages)

    def action_first(self) -> None:
        """Move the cursor to the first destination."""
        self.query_one(LineTable).action_first()

    def action_last(self) -> None:
        """Move the cursor to the last destination."""
        self.query_one(LineTable).action_last()

    def action_leave(self) -> None:
        """Leave without a destination."""
        self.dismiss(None)


def _make_columns(location_width: int) -> tuple[Column, ...]:
    return (
        Column("kind", "kind", _KIND_WIDTH),
        Column("name", "name", 20, flexible=True),
        Column("location", "where", location_width, drop_priority=1),
    )


def _make_row(
    destination: Destination, location_width: int, wanted_words: Iterable[str]
) -> FixedRow:
    """Return a row; a benchmark that a word found is in front of the location."""
    benchmark = destination.benchmark
    is_match = any(word in benchmark and word not in destination.name for word in wanted_words)
    prefix = f"{benchmark} in " if is_match else ""
    location = shorten_path(destination.location, max(1, location_width - len(prefix)))
    cells = (
        TableCell(destination.kind.value, "muted"),
        destination.name,
        TableCell(f"{prefix}{location}", "muted"),
    )
    return FixedRow(cells, (destination.kind.value, destination.name, destination.location))
