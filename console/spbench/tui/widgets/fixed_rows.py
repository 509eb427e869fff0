"""Rows of a table that do not change."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

MAX_LINES = 20
"""Largest number of rows that a table shows without scrolling."""


class FixedRow(NamedTuple):
    """The cells of a row, and its sort keys, both by column; a key of None sorts last."""

    cells: Sequence[TableCell | str]
    sort_keys: Sequence[Any]


class FixedRows:
    """Rows that do not change."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[FixedRow] = ()) -> None:
        self._indices = {column.key: index for index, column in enumerate(columns)}
        self._rows = rows

    def keys(self) -> Sequence[Hashable]:
        """Return the indices of the rows."""
        return range(len(self._rows))

    def version(self, key: Hashable) -> Hashable:
        """Return the same version always."""
        return 0

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a row."""
        assert isinstance(key, int)
        return self._rows[key].cells

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a row in a column."""
        assert isinstance(key, int)
        return self._rows[key].sort_keys[self._indices[column]]

    def search_text(self, key: Hashable) -> str:
        """Return the text of all cells of a row."""
        return " ".join(map(get_text, self.cells(key))).lower()


def fill_table(table: LineTable, columns: Sequence[Column], rows: Sequence[FixedRow]) -> None:
    """Show rows in a table and make it as high as they are, up to `MAX_LINES`."""
    table.styles.height = min(len(rows), MAX_LINES) + 1
    table.set_rows(FixedRows(columns, rows), columns)


def get_text(cell: TableCell | str) -> str:
    """Return the text of a cell."""
    return cell.text if isinstance(cell, TableCell) else cell
