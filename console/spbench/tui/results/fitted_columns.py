"""The widths of a table's columns by what their cells hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from spbench.tui.results.swept_columns import DISPENSABLE, SweptColumns, choose_swept_columns
from spbench.tui.widgets.table_columns import Column, Rows, lay_out
from spbench.tui.widgets.text import cell_width

MAX_MEASURED_ROWS = 1000
"""Tables with more rows than this keep the declared widths."""
MAX_COLUMN_WIDTH = 30
"""The most cells of a column that is not flexible."""


def choose_columns(
    columns: Sequence[Column], rows: Rows, cases: Collection[str], room: int, after: str = "case"
) -> tuple[SweptColumns, list[Column]]:
    """Return the columns of what is swept, and all columns with the widths that cells need.

    Args:
        columns: The columns without those of what is swept.
        rows: The rows with a cell for each of these columns.
        cases: The ids of the cases.
        room: The width of the table in cells.
        after: The key of the column of cases.
    """
    measured = _measure_columns(columns, rows)
    swept = choose_swept_columns(cases, measured, room, after)
    needed = max((cell_width(swept.cells(case)[0]) for case in cases), default=0)
    return swept, _widen_ids(swept.columns(measured), needed, room)


def _measure_columns(columns: Sequence[Column], rows: Rows) -> list[Column]:
    """Return the columns as wide as their cells, without empty ones at the end."""
    keys = rows.keys()
    if not keys or len(keys) > MAX_MEASURED_ROWS:
        return list(columns)
    widths = [0] * len(columns)
    for key in keys:
        for at, cell in enumerate(rows.cells(key)):
            text = cell if isinstance(cell, str) else cell.text
            widths[at] = max(widths[at], cell_width(text))
    measured = [
        column
        if column.flexible
        else replace(column, width=max(len(column.title), min(MAX_COLUMN_WIDTH, width)))
        for column, width in zip(columns, widths, strict=True)
    ]
    while measured[-1].rank and not widths[len(measured) - 1]:
        measured.pop()
    return measured


def _widen_ids(columns: list[Column], needed: int, room: int) -> list[Column]:
    """Return the columns with whole ids, if that costs only columns of little use."""
    whole = [
        replace(column, width=max(len(column.title), needed)) if column.flexible else column
        for column in columns
    ]
    layout = lay_out(whole, room)
    kept = {place.column.key for place in layout.placed}
    lost = [column for column in whole if column.key not in kept]
    if layout.width <= room and all(column.rank >= DISPENSABLE for column in lost):
        return whole
    return columns
