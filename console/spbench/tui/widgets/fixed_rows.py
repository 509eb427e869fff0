"""Rows of a table that are all known at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

MAX_LINES = 20
"""Rows that a table shows without scrolling."""


class FixedRows:
    """Rows that do not change.

    Args:
        columns: The columns.
        rows: The cells of each row; figures are sorted as numbers.
    """

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[TableCell | str]] = ()
    ) -> None:
        self._places = {column.key: at for at, column in enumerate(columns)}
        self._rows = rows

    def keys(self) -> Sequence[Hashable]:
        """Return the rows' places."""
        return range(len(self._rows))

    def version(self, key: Hashable) -> Hashable:
        """Return the same always."""
        return 0

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return a row's cells."""
        return self._rows[self._at(key)]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the figure at the begin of a cell, else its text; figures come first."""
        words = _text(self.cells(key)[self._places[column]]).split()
        if not words:
            return None
        try:
            return 0, float(words[0].rstrip("%")), ""
        except ValueError:
            return 1, 0.0, " ".join(words)

    def text(self, key: Hashable) -> str:
        """Return a row's words."""
        return " ".join(map(_text, self.cells(key))).lower()

    @staticmethod
    def _at(key: Hashable) -> int:
        assert isinstance(key, int)
        return key


def fill_table(
    table: LineTable, columns: Sequence[Column], rows: Sequence[Sequence[TableCell | str]]
) -> None:
    """Show rows in a table that is as high as they are, up to `MOST_LINES`."""
    table.styles.height = min(len(rows), MAX_LINES) + 1
    table.set_rows(FixedRows(columns, rows))


def _text(cell: TableCell | str) -> str:
    return cell.text if isinstance(cell, TableCell) else cell
