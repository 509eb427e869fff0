"""Columns, cells and rows of a table, and the layout of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spbench.tui.widgets.text import Align, cell_width

MARGIN = 2
"""Cells left of the first column, for the mark of the cursor."""
_GAP = 1
_MAX_ADDED_GAP = 3
"""Most cells that a gap gets of the remaining width: wider ones would lose the row."""
_MAX_FLEXIBLE_SPARE = 4
"""Most cells that a flexible column has beyond its longest cell, unless it is the last one."""
ARROW_WIDTH = 1
"""Cells of the arrow that marks the sort column."""
_MARK_WIDTH = 1
"""Cells at the end of the heading for the mark of columns that are left out."""
MAX_COLUMN_WIDTH = 30
"""Largest width of a column that is not flexible, unless it declares a larger one."""
_MAX_NOTE_WIDTH = 40
"""Cells of a flexible column that may be left out for which others are left out."""
DROPPABLE_PRIORITY = 2
"""Smallest drop priority of columns that may be left out to avoid cut ids."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        width: Usual width, in cells. Longer cells make it wider; a narrow table removes blanks.
        drop_priority: If the table is too narrow, columns with the highest priority are left out
            first. Columns of priority 0 always stay.
        flexible: Whether the column takes the remaining width, as far as it needs it.
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


def measure_cells(cells: Sequence[TableCell | str]) -> list[int]:
    """Return the widths of the texts of a row."""
    return [cell_width(cell if isinstance(cell, str) else cell.text) for cell in cells]


def lay_out(
    columns: Sequence[Column],
    width: int,
    show_all: bool = False,
    cell_widths: Sequence[int] | None = None,
    sort_column: str | None = None,
) -> Layout:
    """Return the layout of columns in a table.

    Columns are as wide as declared, or as their cells if these are wider. If that is too wide for
    the table, blanks are removed first and then dispensable columns, so that ids are not cut. If
    ids are too long for that, they are cut. If columns are left out, one cell stays free for their
    mark.

    Args:
        columns: All columns, from left to right.
        width: The width of the table, in cells.
        show_all: Leave no column out, even if they do not fit.
        cell_widths: The widest cell of each column; None if the cells are unknown.
        sort_column: The key of the column with an arrow after its title; None: no column.
    """
    needed_widths = _list_needed_widths(columns, cell_widths, sort_column)
    wide = [
        needed if _holds_ids(column) else max(column.width, needed)
        for column, needed in zip(columns, needed_widths, strict=True)
    ]
    indices = list(range(len(columns)))
    if show_all or _sum_widths(wide, indices) <= width:
        return _place(columns, indices, wide, width, needed_widths)
    drop_order = _order_dispensable(columns, cell_widths)
    minor = [index for index in drop_order if columns[index].drop_priority >= DROPPABLE_PRIORITY]
    indices = _drop_columns(needed_widths, width, minor)
    is_whole = all(index in indices for index, column in enumerate(columns) if column.flexible)
    if is_whole and _sum_widths(needed_widths, indices) <= _get_room(columns, indices, width):
        return _place(columns, indices, needed_widths, width, needed_widths)
    narrow = [
        min(column.width, needed) if column.flexible else needed
        for column, needed in zip(columns, needed_widths, strict=True)
    ]
    indices = _drop_columns(narrow, width, drop_order)
    return _place(columns, indices, narrow, width, needed_widths)


def _holds_ids(column: Column) -> bool:
    return column.flexible and not column.drop_priority


def _list_needed_widths(
    columns: Sequence[Column], cell_widths: Sequence[int] | None, sort_column: str | None
) -> list[int]:
    """Return the widths in which no cell is cut; other flexible columns may be cut."""
    if cell_widths is None:
        return [column.width for column in columns]
    needed_widths = []
    for column, cells_width in zip(columns, cell_widths, strict=True):
        limit = max(column.width, MAX_COLUMN_WIDTH)
        if column.flexible:
            limit = _MAX_NOTE_WIDTH if column.drop_priority else cells_width
        least_width = cell_width(column.title) or column.width
        if column.key == sort_column:
            least_width += ARROW_WIDTH
        needed_widths.append(max(least_width, min(limit, cells_width)))
    return needed_widths


def _order_dispensable(columns: Sequence[Column], cell_widths: Sequence[int] | None) -> list[int]:
    """Return the indices of dispensable columns in the order in which they go."""
    indices = [index for index, column in enumerate(columns) if column.drop_priority]

    def order(index: int) -> tuple[bool, int, int]:
        is_empty = cell_widths is not None and not cell_widths[index]
        return is_empty, columns[index].drop_priority, index

    return sorted(indices, key=order, reverse=True)


def _drop_columns(widths: Sequence[int], width: int, drop_order: Sequence[int]) -> list[int]:
    """Return the indices of the columns that stay.

    A narrow column stays if the space of a wider one that goes is enough for it.
    """
    indices = list(range(len(widths)))
    dropped = []
    for index in drop_order:
        if _sum_widths(widths, indices) <= _get_room(widths, indices, width):
            break
        indices.remove(index)
        dropped.append(index)
    for index in reversed(dropped):
        more = sorted([*indices, index])
        if _sum_widths(widths, more) <= _get_room(widths, more, width):
            indices = more
    return indices


def _get_room(columns: Sequence[object], indices: Sequence[int], width: int) -> int:
    return width if len(indices) == len(columns) else width - _MARK_WIDTH


def _sum_widths(widths: Sequence[int], indices: Sequence[int]) -> int:
    return MARGIN - _GAP + sum(widths[index] + _GAP for index in indices)


def _place(
    columns: Sequence[Column],
    indices: Sequence[int],
    widths: Sequence[int],
    width: int,
    needed_widths: Sequence[int],
) -> Layout:
    """Return the layout of some columns; flexible ones take the width that they need.

    Each gap has two cells if there are enough. The gaps share the rest, except after a mark, a
    column without a title, which belongs to the column after it. A column of text at the right end
    takes all of the rest.
    """
    spare_width = max(0, _get_room(columns, indices, width) - _sum_widths(widths, indices))
    flexible = [index for index in indices if columns[index].flexible]
    placed_widths = {index: widths[index] for index in indices}
    for index in flexible:
        added_width = min(spare_width, max(0, needed_widths[index] - widths[index]))
        placed_widths[index] += added_width
        spare_width -= added_width
    wide_gaps = {index for index in indices[:-1] if columns[index].title}
    added_gap = 1 if spare_width >= len(wide_gaps) else 0
    spare_width -= added_gap * len(wide_gaps)
    if flexible:
        spare_limit = spare_width if flexible[-1] == indices[-1] else _MAX_FLEXIBLE_SPARE
        added_width = min(spare_width, spare_limit)
        placed_widths[flexible[-1]] += added_width
        spare_width -= added_width
    if flexible and wide_gaps:
        added_gap += min(_MAX_ADDED_GAP - added_gap, spare_width // len(wide_gaps))
    placed = []
    x = MARGIN
    right_end = MARGIN
    for index in indices:
        placed.append(PlacedColumn(columns[index], index, x, placed_widths[index]))
        right_end = x + placed_widths[index]
        x = right_end + _GAP + (added_gap if index in wide_gaps else 0)
    return Layout(tuple(placed), right_end, len(columns) - len(indices))
