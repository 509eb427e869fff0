"""A table of thousands of changing rows that draws only the lines in view."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from time import monotonic
from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click, Resize
from textual.geometry import Offset
from textual.message import Message
from textual.reactive import reactive

from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.table_columns import Column, FrozenRows, Rows
from spbench.tui.widgets.table_lines import count_fixed_cells
from spbench.tui.widgets.table_order import RowOrder
from spbench.tui.widgets.table_view import TableView

_STYLE_NAMES = (
    *("heading", "sorted", "paused", "cursor", "title", "accent", "muted", "slow"),
    *("passed", "failed", "error", "timeout", "cancelled", "skipped", "running", "waiting"),
)
"""The names that the style of a cell may consist of."""


class LineTable(TableView, can_focus=True):
    """A table with a fixed heading and a row cursor.

    The page calls `update_rows` when the rows may have changed. The cost of an update depends on
    the lines in view and hardly on the number of rows.

    Args:
        columns: The columns from left to right.
        rows: The source of the rows, read again at every update.
        id: The widget's id.
        classes: The widget's classes.
        empty: The text shown while there are no rows.
        sort: The key of the column to sort by; None for the natural order of the rows.
        reverse: Whether the order is reversed.
        sort_to_top: Whether sorting by a column moves the cursor to the first row.
    """

    HELP: ClassVar[str] = """\
Rows that change as they are measured; ▸ marks the chosen one.
Up, Down, Page Up, Page Down, Home, End (or j, k, g, G) choose a row; Enter opens it.
s sorts by the next column, S turns the order round; a click on a heading does both.
« and » mark columns out of view: left and right scroll, w shows all columns or fits them."""
    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("table.up", "up,k", "move(-1)", "Up", "The row above"),
        make_binding("table.down", "down,j", "move(1)", "Down", "The row below"),
        make_binding(
            "table.page-up", "pageup", "page(-1)", "Page up", "As many rows up as are in view"
        ),
        make_binding(
            "table.page-down",
            "pagedown",
            "page(1)",
            "Page down",
            "As many rows down as are in view",
        ),
        make_binding("table.first", "home,g", "first", "First", "The first row"),
        make_binding("table.last", "end,G", "last", "Last", "The last row"),
        make_binding("table.left", "left", "sideways(-1)", "Left", "The columns to the left"),
        make_binding("table.right", "right", "sideways(1)", "Right", "The columns to the right"),
        make_binding("table.open", "enter", "choose", "Open", "Open the row", show=True),
        make_binding("table.sort", "s", "sort", "Sort", "Sort by the next column"),
        make_binding("table.reverse", "S", "reverse", "Reverse", "Turn the order round"),
        make_binding("table.wide", "w", "wide", "All columns", "All columns, or those that fit"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line-table--{name}" for name in _STYLE_NAMES}
    DEFAULT_CSS = """
    LineTable {
        width: 1fr; height: 1fr; background: transparent; color: $foreground;
        scrollbar-gutter: stable; scrollbar-size: 0 1;
        & > .line-table--heading { color: $text-secondary; text-style: bold; }
        & > .line-table--sorted { color: $text-accent; }
        & > .line-table--paused { text-style: bold reverse; }
        & > .line-table--cursor { background: $primary 15%; }
        &:focus > .line-table--cursor { background: $primary 28%; text-style: bold; }
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
    """Words that the text of a row must contain; upper and lower case are equal."""

    class TableMessage(Message):
        """An action of the user on a table."""

        def __init__(self, table: LineTable) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> LineTable:
            """The table."""
            return self.table

    class RowHighlighted(TableMessage):
        """The cursor is on another row."""

        def __init__(self, table: LineTable, key: Hashable) -> None:
            super().__init__(table)
            self.key = key

    class RowSelected(TableMessage):
        """A row was opened by enter or a double click."""

        def __init__(self, table: LineTable, key: Hashable) -> None:
            super().__init__(table)
            self.key = key

    class SortChanged(TableMessage):
        """The table has another sort column (None: natural order) or direction."""

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
        sort_to_top: bool = False,
    ) -> None:
        super().__init__(columns, RowOrder(rows, sort, reverse), empty, id, classes)
        self._sort_to_top = sort_to_top
        self._live_rows = rows
        self._cursor_key: Hashable | None = None
        self._known_height = 0

    @property
    def match_count(self) -> int:
        """The number of rows that match the filter."""
        return len(self._order.keys)

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self._order.row_count

    @property
    def matching_keys(self) -> Sequence[Hashable]:
        """The keys of the rows that match the filter, in their order."""
        return self._order.keys

    @property
    def visible_keys(self) -> Sequence[Hashable]:
        """The keys of the rows in view, from the top."""
        top = self.scroll_offset.y
        return self._order.keys[top : top + self._lines]

    @property
    def cursor_key(self) -> Hashable | None:
        """The key of the row under the cursor; None if there are no rows."""
        return self._cursor_key

    @property
    def sorted_by(self) -> tuple[str | None, bool]:
        """The sort column, and whether the order is reversed."""
        return self._order.sort_column, self._order.reverse

    def update_rows(self) -> None:
        """Read the rows again, and repaint the changed lines in view."""
        if not self.paused:
            self._reorder()

    def shows(self, rows: Rows, columns: Sequence[Column]) -> bool:
        """Return whether the table shows these rows and columns."""
        return rows is self._live_rows and tuple(columns) == tuple(self._columns)

    def set_rows(self, rows: Rows, columns: Sequence[Column] | None = None) -> None:
        """Show other rows, with the same or other columns."""
        self._live_rows = rows
        if columns is not None:
            self._set_columns(columns)
        self._update_row_source()
        self._update_order(force=True)
        self._fit_columns()  # before the rows are painted, which may have more columns than before
        self._repaint()

    def move_to(self, key: Hashable) -> None:
        """Move the cursor to a row, if it is shown."""
        index = self._order.find_index(key)
        if index is not None:
            self._move(index)

    def sort_by(self, column: str | None, reverse: bool = False) -> None:
        """Sort by a column, given by its key; None restores the natural order."""
        self._order.sort_column = column
        self._order.reverse = reverse
        self._place_columns()  # the sort column needs space for the arrow
        self._reorder(force=True)
        if self._sort_to_top and column is not None:
            self._move(0)
        self.refresh()
        self.post_message(self.SortChanged(self, column, reverse))

    @property
    def is_sorted(self) -> bool:
        """Whether the rows are not in their natural order."""
        return self.sorted_by != (None, False)

    def restore_order(self) -> None:
        """Restore the natural order."""
        if self.is_sorted:
            self.sort_by(None)

    def watch_filter(self, text: str) -> None:
        """Show the rows that match."""
        self._order.filter_words = text.lower().split()
        self._reorder(force=True)

    def watch_paused(self) -> None:
        """Freeze the rows as they are now, or show changes again."""
        self._update_row_source()
        self._reorder()

    def _update_row_source(self) -> None:
        rows = self._live_rows
        self._order.rows = FrozenRows(rows, self._columns) if self.paused else rows
        self._row_strips.clear()
        self.refresh()

    def _reorder(self, force: bool = False) -> None:
        self._update_order(force)
        self._repaint()

    def _update_order(self, force: bool) -> None:
        if self._order.update(monotonic(), force):
            self._keep_cursor_on_row()

    def _keep_cursor_on_row(self) -> None:
        """Keep the cursor on its row, and in its line unless the view is at the top."""
        top = self.scroll_offset.y
        old = self._cursor
        cursor_is_visible = 0 < top <= old < top + self._lines
        index = self._order.find_index(self._cursor_key)
        self._resize_contents()
        self._set_cursor(old if index is None else index)
        if cursor_is_visible:
            self._scroll_rows(top + self._cursor - old)

    def _scroll_rows(self, top: int) -> None:
        self.scroll_target_y = self.scroll_y = top

    def _set_cursor(self, index: int) -> None:
        self._cursor = max(0, min(index, self.match_count - 1))
        key = self._order.keys[self._cursor] if self.match_count else None
        if key != self._cursor_key:
            self._cursor_key = key
            if self.match_count:
                self.post_message(self.RowHighlighted(self, key))

    def on_resize(self, event: Resize) -> None:
        """Scroll to the cursor if the table has another height."""
        if event.size.height != self._known_height:
            self._known_height = event.size.height
            self._scroll_to_cursor()

    def _move(self, index: int) -> None:
        self._set_cursor(index)
        self._scroll_to_cursor()
        self._repaint()

    def _scroll_to_cursor(self) -> None:
        top = self.scroll_offset.y
        lowest = self._cursor - self._lines + 1
        highest = self._cursor
        if not lowest <= top <= highest:
            self._scroll_rows(max(lowest, min(top, highest)))

    def action_move(self, rows: int) -> None:
        """Move the cursor by a number of rows."""
        self._move(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by the number of rows in view, times ``pages``."""
        self._move(self._cursor + pages * self._lines)

    def action_first(self) -> None:
        """Move to the first row."""
        self._move(0)

    def action_last(self) -> None:
        """Move to the last row."""
        self._move(self.match_count - 1)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.match_count:
            self.post_message(self.RowSelected(self, self._cursor_key))

    def action_sort(self) -> None:
        """Sort by the next shown column; after the last one by the natural order."""
        keys: list[str | None] = [None, *(placed.column.key for placed in self._layout.placed)]
        current = keys.index(self._order.sort_column) if self._order.sort_column in keys else 0
        self.sort_by(keys[(current + 1) % len(keys)], self._order.reverse)

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.sort_by(self._order.sort_column, not self._order.reverse)

    def on_click(self, event: Click) -> None:
        """Select a row, open it on a double click, or sort by the clicked title."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            self._click_heading(offset)
        elif self.scroll_offset.y + offset.y <= self.match_count:
            self._move(self.scroll_offset.y + offset.y - 1)
            if event.chain > 1:
                self.action_choose()

    def _click_heading(self, offset: Offset) -> None:
        scroll = self.scroll_offset.x
        width = self._width
        if offset.x == 0 and scroll:
            self.action_sideways(-1)
        elif offset.x == width - 1 and self._more_right:
            self.action_sideways(1)
        else:
            is_scrolled = offset.x >= count_fixed_cells(self._layout, width)
            column = self._layout.find_column(offset.x + scroll if is_scrolled else offset.x)
            if column is not None:
                is_sorted = column.key == self._order.sort_column
                self.sort_by(column.key, reverse=is_sorted and not self._order.reverse)
