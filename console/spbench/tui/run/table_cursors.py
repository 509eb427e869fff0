"""The cursors of tables that both the user and the page move."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, Rows


class TableCursors:
    """The last known cursors of tables.

    A table posts equal messages for moves of the user and of the page. Each move of the page is
    therefore made here, and a message with another cursor is a choice of the user.
    """

    def __init__(self) -> None:
        self._keys: dict[LineTable, Hashable] = {}

    def is_user_choice(self, message: LineTable.RowHighlighted) -> bool:
        """Return whether the user selected a row, not an update of the page."""
        table = message.table
        if message.key in (self._keys.get(table), None) or message.key != table.cursor_key:
            return False
        self._keys[table] = message.key
        return table.has_focus

    def is_untouched(self, table: LineTable) -> bool:
        """Return whether the cursor is the last known one, so that no message is to come."""
        return table.cursor_key == self._keys.get(table)

    def move(self, table: LineTable, key: Hashable) -> None:
        """Move the cursor of a table."""
        with self.moved_by_page(table):
            table.move_to(key)

    def set_rows(
        self, table: LineTable, rows: Rows, columns: Sequence[Column] | None = None
    ) -> None:
        """Show other rows or columns in a table."""
        with self.moved_by_page(table):
            table.set_rows(rows, columns)

    def show(self, table: LineTable, rows: Rows, columns: Sequence[Column]) -> None:
        """Update a table, or show other rows or columns in it."""
        if table.shows(rows, columns):
            with self.moved_by_page(table):
                table.update_rows()
        else:
            self.set_rows(table, rows, columns)

    @contextmanager
    def moved_by_page(self, table: LineTable) -> Iterator[None]:
        """Remember the cursor if it moves within this context."""
        before = table.cursor_key
        yield
        if table.cursor_key != before:
            self._keys[table] = table.cursor_key
