"""Rows of a table that do not change."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.table_columns import Column, TableCell

MAX_LINES = 20
"""Largest number of rows that a table shows without scrolling."""


class FixedRows:
    """Rows that do not change.

    Args:
        columns: The columns.
        rows: The cells of each row; numbers are sorted by value.
    """

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[TableCell | str]] = ()
    ) -> None:
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
        return self._rows[key]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the number at the start of a cell, or its text; numbers come first."""
        first, *others = _get_text(self.cells(key)[self._indices[column]]).split() or [""]
        if not first:
            return None
        try:
            return 0, float(first.rstrip("%")), ""
        except ValueError:
            return 1, 0.0, " ".join((first, *others))

    def text(self, key: Hashable) -> str:
        """Return the text of all cells of a row."""
        return " ".join(map(_get_text, self.cells(key))).lower()


def fill_table(
    table: LineTable, columns: Sequence[Column], rows: Sequence[Sequence[TableCell | str]]
) -> None:
    """Show rows in a table and make it as high as they are, up to `MAX_LINES`."""
    table.styles.height = min(len(rows), MAX_LINES) + 1
    table.set_rows(FixedRows(columns, rows))


def _get_text(cell: TableCell | str) -> str:
    return cell.text if isinstance(cell, TableCell) else cell
