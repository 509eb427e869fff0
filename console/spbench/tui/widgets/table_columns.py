"""Columns, cells and rows of a table, and the layout of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spbench.tui.widgets.text import Align

MARGIN = 2
"""Cells left of the first column, for the mark of the cursor."""
_GAP = 1
_MARK_WIDTH = 1
"""Cells at the end of the heading for the mark of columns that are left out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        width: Smallest width, in cells.
        drop_priority: If the table is too narrow, columns with the highest priority are left out
            first. Columns of priority 0 always stay.
        flexible: Whether the column takes the remaining width.
    """

    key: str
    title: str
    width: int
    align: Align = "left"
    drop_priority: int = 0
    flexible: bool = False


@dataclass(frozen=True, slots=True)
class TableCell:
    """A text and its style, such as ``passed``, ``failed``, ``slow`` or ``muted``."""

    text: str
    style: str = ""


class Rows(Protocol):
    """A source of rows; a table reads it again at every update."""

    def keys(self) -> Sequence[Hashable]:
        """Return the keys of all rows in natural order."""

    def version(self, key: Hashable) -> Hashable:
        """Return a value that changes whenever the cells of a row change."""

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a row, in the order of the columns."""

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a row, comparable within a column; None sorts last."""

    def search_text(self, key: Hashable) -> str:
        """Return the text that a filter searches, in lower case."""


class FrozenRows:
    """A snapshot of rows, shown while a table is paused."""

    def __init__(self, rows: Rows, columns: Sequence[Column]) -> None:
        self._keys = list(rows.keys())
        self._versions = {key: rows.version(key) for key in self._keys}
        self._cells = {key: tuple(rows.cells(key)) for key in self._keys}
        self._texts = {key: rows.search_text(key) for key in self._keys}
        self._values = {
            column.key: {key: rows.sort_value(key, column.key) for key in self._keys}
            for column in columns
        }

    def keys(self) -> Sequence[Hashable]:
        """Return the keys in the snapshot."""
        return self._keys

    def version(self, key: Hashable) -> Hashable:
        """Return the version in the snapshot."""
        return self._versions[key]

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells in the snapshot."""
        return self._cells[key]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort value in the snapshot."""
        return self._values[column][key]

    def search_text(self, key: Hashable) -> str:
        """Return the text in the snapshot."""
        return self._texts[key]


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A shown column: its index in a row, its first terminal cell, and its width."""

    column: Column
    index: int
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The shown columns, their width in cells, and the number of columns left out."""

    placed: tuple[PlacedColumn, ...] = ()
    width: int = 0
    left_out: int = 0

    def find_column(self, x: int) -> Column | None:
        """Return the column at a cell; a gap belongs to the column before it."""
        candidates = [placed for placed in self.placed if placed.x <= x]
        return candidates[-1].column if candidates and x < self.width + _GAP else None


def lay_out(columns: Sequence[Column], width: int, show_all: bool = False) -> Layout:
    """Return the layout of columns in a table.

    If columns are left out, one cell stays free for their mark.

    Args:
        columns: All columns, from left to right.
        width: The width of the table, in cells.
        show_all: Leave no column out, even if they do not fit.
    """
    indexed_columns = list(enumerate(columns))
    available_width = width
    while (
        not show_all
        and _sum_widths(indexed_columns) > available_width
        and any(column.drop_priority for _, column in indexed_columns)
    ):
        indexed_columns.remove(
            max(indexed_columns, key=lambda pair: (pair[1].drop_priority, pair[0]))
        )
        available_width = width - _MARK_WIDTH
    spare_width = max(0, available_width - _sum_widths(indexed_columns))
    placed = []
    x = MARGIN
    for index, column in indexed_columns:
        column_width = column.width
        if column.flexible:
            column_width += spare_width
            spare_width = 0
        placed.append(PlacedColumn(column, index, x, column_width))
        x += column_width + _GAP
    return Layout(tuple(placed), max(MARGIN, x - _GAP), len(columns) - len(indexed_columns))


def _sum_widths(indexed_columns: list[tuple[int, Column]]) -> int:
    return MARGIN - _GAP + sum(column.width + _GAP for _, column in indexed_columns)
