"""A table for thousands of rows that change all the time: only lines in view are drawn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from time import monotonic
from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click
from textual.geometry import Offset
from textual.message import Message
from textual.reactive import reactive

from spbench.tui.widgets.keys import key
from spbench.tui.widgets.table_columns import Column, FrozenRows, Rows
from spbench.tui.widgets.table_lines import count_fixed_cells
from spbench.tui.widgets.table_order import RowOrder
from spbench.tui.widgets.table_view import TableView

_WORDS = (
    *("heading", "sorted", "paused", "cursor", "title", "accent", "muted", "slow"),
    *("passed", "failed", "error", "timeout", "cancelled", "skipped", "running", "waiting"),
)
"""The words a cell's style may be of."""


class LineTable(TableView, can_focus=True):
    """A heading that stays, and rows with a cursor.

    The page calls `update_rows` when the rows may have changed. What that costs depends on the
    lines in view, hardly on the number of rows.

    Args:
        columns: The columns from left to right.
        rows: Where the rows come from; asked again at every update.
        id: The widget's id.
        classes: The widget's classes.
        empty: What stands there while there are no rows.
        sort: The key of the column to sort by; None for the rows' natural order.
        reverse: Whether the order is turned round.
    """

    HELP: ClassVar[str] = """\
Rows that change as they are measured; ▸ marks the chosen one.
Up, down, page up, page down, home, end (or j, k, g, G) choose a row; enter opens it.
s sorts by the next column, S turns the order round; a click on a heading does both.
« and » tell of columns out of view: left and right scroll, w shows all or those that fit."""
    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        key("table.up", "up,k", "move(-1)", "Up", "The row above"),
        key("table.down", "down,j", "move(1)", "Down", "The row below"),
        key("table.page-up", "pageup", "page(-1)", "Page up", "As many rows up as are in view"),
        key(
            "table.page-down",
            "pagedown",
            "page(1)",
            "Page down",
            "As many rows down as are in view",
        ),
        key("table.first", "home,g", "first", "First", "The first row"),
        key("table.last", "end,G", "last", "Last", "The last row"),
        key("table.left", "left", "sideways(-1)", "Left", "The columns to the left"),
        key("table.right", "right", "sideways(1)", "Right", "The columns to the right"),
        key("table.open", "enter", "choose", "Open", "Open the row", show=True),
        key("table.sort", "s", "sort", "Sort", "Sort by the next column"),
        key("table.reverse", "S", "reverse", "Reverse", "Turn the order round"),
        key("table.wide", "w", "wide", "All columns", "All columns, or those that fit"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line-table--{word}" for word in _WORDS}
    DEFAULT_CSS = """
    LineTable {
        width: 1fr; height: 1fr; background: $surface; color: $foreground;
        scrollbar-gutter: stable; scrollbar-size: 0 1;
        & > .line-table--heading { background: $panel; text-style: bold; }
        & > .line-table--sorted { color: $text-accent; }
        & > .line-table--paused { text-style: bold reverse; }
        & > .line-table--cursor { background: $primary 25%; }
        &:focus > .line-table--cursor { background: $primary 40%; text-style: bold; }
        & > .line-table--title { text-style: bold; }
        & > .line-table--accent { color: $text-accent; }
        & > .line-table--muted { color: $text-muted; }
        & > .line-table--slow { color: $text-warning; text-style: underline; }
        & > .line-table--passed { color: $text-success; }
        & > .line-table--failed { color: $text-error; text-style: bold; }
        & > .line-table--error { color: $text-error; text-style: bold; }
        & > .line-table--timeout { color: $text-error; text-style: bold; }
        & > .line-table--cancelled { color: $text-muted; }
        & > .line-table--skipped { color: $text-muted; }
        & > .line-table--running { color: $text-primary; }
        & > .line-table--waiting { color: $text-muted; }
    }
    """

    filter: reactive[str] = reactive("", init=False)
    """Words that a row's text must all contain, in any case of letters."""

    class TableMessage(Message):
        """Something that the reader did to a table."""

        def __init__(self, table: LineTable) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> LineTable:
            """The table."""
            return self.table

    class RowHighlighted(TableMessage):
        """The cursor stands on another row."""

        def __init__(self, table: LineTable, key: Hashable) -> None:
            super().__init__(table)
            self.key = key

    class RowSelected(TableMessage):
        """A row was opened: enter, or a double click."""

        def __init__(self, table: LineTable, key: Hashable) -> None:
            super().__init__(table)
            self.key = key

    class SortChanged(TableMessage):
        """The table is sorted by another column (None: in natural order), or the other way."""

        def __init__(self, table: LineTable, column: str | None, reverse: bool) -> None:
            super().__init__(table)
            self.column = column
            self.reverse = reverse

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Rows,
        *,
        id: str | None = None,
        classes: str | None = None,
        empty: str = "nothing here yet",
        sort: str | None = None,
        reverse: bool = False,
    ) -> None:
        super().__init__(columns, RowOrder(rows, sort, reverse), empty, id, classes)
        self._live_rows = rows
        self._cursor_key: Hashable | None = None

    @property
    def shown(self) -> int:
        """The number of rows that match the filter."""
        return len(self._order.keys)

    @property
    def total(self) -> int:
        """The number of rows."""
        return self._order.total

    @property
    def keys_shown(self) -> Sequence[Hashable]:
        """The keys of the rows that match the filter, in their order."""
        return self._order.keys

    @property
    def in_view(self) -> Sequence[Hashable]:
        """The keys of the rows that are seen, from above."""
        top = self.scroll_offset.y
        return self._order.keys[top : top + self._lines]

    @property
    def cursor_key(self) -> Hashable | None:
        """The key of the row under the cursor; None where there is no row."""
        return self._cursor_key

    @property
    def sorted_by(self) -> tuple[str | None, bool]:
        """The column that the table is sorted by, and whether the order is turned round."""
        return self._order.sort, self._order.reverse

    def update_rows(self) -> None:
        """Look at the rows again, and repaint the lines in view that have changed."""
        if not self.paused:
            self._reorder()

    def set_rows(self, rows: Rows, columns: Sequence[Column] | None = None) -> None:
        """Show other rows, with the same columns or with others."""
        self._live_rows = rows
        if columns is not None:
            self._use_columns(columns)
        self._use_rows()
        self._reorder(at_once=True)

    def move_to(self, key: Hashable) -> None:
        """Put the cursor on a row, if it is shown."""
        place = self._order.find_index(key)
        if place is not None:
            self._move(place)

    def sort_by(self, column: str | None, reverse: bool = False) -> None:
        """Sort by the column of a key, or in natural order."""
        self._order.sort = column
        self._order.reverse = reverse
        self._reorder(at_once=True)
        self.refresh()
        self.post_message(self.SortChanged(self, column, reverse))

    def watch_filter(self, words: str) -> None:
        """Show the rows that match."""
        self._order.filter_words = words.lower().split()
        self._reorder(at_once=True)

    def watch_paused(self) -> None:
        """Keep the rows as they are now, or let them go on."""
        self._use_rows()
        self._reorder()

    def _use_rows(self) -> None:
        rows = self._live_rows
        self._order.rows = FrozenRows(rows, self._columns) if self.paused else rows
        self._row_strips.clear()
        self.refresh()

    def _reorder(self, at_once: bool = False) -> None:
        if self._order.update(monotonic(), at_once):
            self._follow()
        self._repaint()

    def _follow(self) -> None:
        """Keep the cursor on its row; unless the view is at its top, it stays in its line too."""
        top = self.scroll_offset.y
        old = self._cursor
        in_view = 0 < top <= old < top + self._lines
        place = self._order.find_index(self._cursor_key)
        self._resize_contents()
        self._put_cursor(old if place is None else place)
        if in_view:
            self._scroll_rows(top + self._cursor - old)

    def _scroll_rows(self, top: int) -> None:
        self.scroll_target_y = self.scroll_y = top

    def _put_cursor(self, place: int) -> None:
        self._cursor = max(0, min(place, self.shown - 1))
        key = self._order.keys[self._cursor] if self.shown else None
        if key != self._cursor_key:
            self._cursor_key = key
            if self.shown:
                self.post_message(self.RowHighlighted(self, key))

    def _move(self, place: int) -> None:
        self._put_cursor(place)
        top = self.scroll_offset.y
        lowest = self._cursor - self._lines + 1
        highest = self._cursor
        if not lowest <= top <= highest:
            self._scroll_rows(max(lowest, min(top, highest)))
        self._repaint()

    def action_move(self, rows: int) -> None:
        """Move the cursor by so many rows."""
        self._move(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by as many rows as are in view."""
        self._move(self._cursor + pages * self._lines)

    def action_first(self) -> None:
        """Move to the first row."""
        self._move(0)

    def action_last(self) -> None:
        """Move to the last row."""
        self._move(self.shown - 1)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.shown:
            self.post_message(self.RowSelected(self, self._cursor_key))

    def action_sort(self) -> None:
        """Sort by the next of the columns that are shown, and after the last by none."""
        order: list[str | None] = [None, *(place.column.key for place in self._fitted.placed)]
        now = order.index(self._order.sort) if self._order.sort in order else 0
        self.sort_by(order[(now + 1) % len(order)], self._order.reverse)

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.sort_by(self._order.sort, not self._order.reverse)

    def on_click(self, event: Click) -> None:
        """Choose a row, open it where it is clicked twice, or sort by a title."""
        at = event.get_content_offset(self)
        if at is None:
            return
        if at.y == 0:
            self._click_heading(at)
        elif self.scroll_offset.y + at.y <= self.shown:
            self._move(self.scroll_offset.y + at.y - 1)
            if event.chain > 1:
                self.action_choose()

    def _click_heading(self, at: Offset) -> None:
        scroll = self.scroll_offset.x
        width = self._width
        if at.x == 0 and scroll:
            self.action_sideways(-1)
        elif at.x == width - 1 and self._more_right:
            self.action_sideways(1)
        else:
            beyond = at.x >= count_fixed_cells(self._fitted, width)
            column = self._fitted.find_column(at.x + scroll * beyond)
            if column is not None:
                again = column.key == self._order.sort
                self.sort_by(column.key, not self._order.reverse if again else False)
