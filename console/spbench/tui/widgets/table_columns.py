"""Columns, cells and rows of a line table, and the layout of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spbench.tui.widgets.fitting import Align

MARGIN = 2
"""Cells left of the first column: they hold the mark of the cursor."""
_GAP = 1
_MARK = 1
"""Cells of the mark of columns that are left out, at the end of the heading."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``width`` in cells is the least it takes.

    Where the terminal is narrow, columns go by ``rank``, the highest first, and those of
    rank 0 never. The ``flexible`` one takes the room that is left.
    """

    key: str
    title: str
    width: int
    align: Align = "left"
    rank: int = 0
    flexible: bool = False


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell's text and its style: ``passed``, ``failed``, ``slow``, ``muted``, or none."""

    text: str
    style: str = ""


class Rows(Protocol):
    """A source of a table's rows: asked again at every update."""

    def keys(self) -> Sequence[Hashable]:
        """Return the keys of all rows in their natural order."""

    def version(self, key: Hashable) -> Hashable:
        """Return what changes when the row's cells do."""

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the row's cells, one a column, in the columns' order."""

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return what the row is sorted by: comparable within a column, None for the end."""

    def text(self, key: Hashable) -> str:
        """Return what the filter looks in, in lower case."""


class FrozenRows:
    """Rows as they were at one moment: what a table shows while it is paused."""

    def __init__(self, rows: Rows, columns: Sequence[Column]) -> None:
        self._keys = list(rows.keys())
        self._versions = {key: rows.version(key) for key in self._keys}
        self._cells = {key: tuple(rows.cells(key)) for key in self._keys}
        self._texts = {key: rows.text(key) for key in self._keys}
        self._values = {
            column.key: {key: rows.sort_value(key, column.key) for key in self._keys}
            for column in columns
        }

    def keys(self) -> Sequence[Hashable]:
        """Return the keys of that moment."""
        return self._keys

    def version(self, key: Hashable) -> Hashable:
        """Return the version of that moment."""
        return self._versions[key]

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of that moment."""
        return self._cells[key]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the value of that moment."""
        return self._values[column][key]

    def text(self, key: Hashable) -> str:
        """Return the text of that moment."""
        return self._texts[key]


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column that is shown: its place in the row's cells, its first cell and its width."""

    column: Column
    index: int
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that are shown, the cells they take together, and how many are left out."""

    placed: tuple[PlacedColumn, ...] = ()
    width: int = 0
    left_out: int = 0

    def find_column(self, x: int) -> Column | None:
        """Return the column under a cell; the gap belongs to the column before it."""
        under = [place for place in self.placed if place.x <= x]
        return under[-1].column if under and x < self.width + _GAP else None


def lay_out(columns: Sequence[Column], width: int, show_all: bool = False) -> Layout:
    """Place the columns in so many cells, and leave one for the mark of those left out.

    Args:
        columns: All columns, from left to right.
        room: The width of the table in cells.
        every: Leave none out, even if they do not fit.
    """
    shown = list(enumerate(columns))
    usable = width
    while not show_all and _needed(shown) > usable and any(column.rank for _, column in shown):
        # Of several that are equally dispensable, the rightmost goes.
        shown.remove(max(shown, key=lambda item: (item[1].rank, item[0])))
        usable = width - _MARK
    spare = max(0, usable - _needed(shown))
    placed = []
    x = MARGIN
    for index, column in shown:
        width = column.width
        if column.flexible:
            width, spare = width + spare, 0
        placed.append(PlacedColumn(column, index, x, width))
        x += width + _GAP
    return Layout(tuple(placed), max(MARGIN, x - _GAP), len(columns) - len(shown))


def _needed(shown: list[tuple[int, Column]]) -> int:
    return MARGIN - _GAP + sum(column.width + _GAP for _, column in shown)
