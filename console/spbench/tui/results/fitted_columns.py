"""Widths of a table's columns, fitted to their cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from spbench.tui.results.swept_columns import SweptColumns, choose_swept_columns
from spbench.tui.widgets.table_columns import (
    DROPPABLE_PRIORITY,
    MAX_COLUMN_WIDTH,
    Column,
    Rows,
    lay_out,
    measure_cells,
)
from spbench.tui.widgets.text import cell_width

MAX_MEASURED_ROWS = 1000
"""Most rows of a table with fitted widths; larger tables keep the declared widths."""


def choose_columns(
    columns: Sequence[Column], rows: Rows, cases: Collection[str], width: int, after: str = "case"
) -> tuple[SweptColumns, list[Column]]:
    """Return the columns of swept parameters, and all columns with fitted widths.

    Args:
        columns: The columns without those of swept parameters.
        rows: The rows with a cell for each of these columns.
        cases: The ids of the cases.
        width: The width of the table, in cells.
        after: The key of the column of cases.
    """
    measured = _measure_columns(columns, rows)
    swept = choose_swept_columns(cases, measured, width, after)
    needed_width = max((cell_width(swept.cells(case)[0]) for case in cases), default=0)
    return swept, _fit_ids(swept.columns(measured), needed_width, width)


def fit_columns(columns: Sequence[Column], rows: Rows, width: int) -> list[Column]:
    """Return columns as wide as their cells; the flexible one may be cut."""
    measured = _measure_columns(columns, rows)
    index = next(index for index, column in enumerate(columns) if column.flexible)
    keys = rows.keys()
    needed_width = 0
    if len(keys) <= MAX_MEASURED_ROWS:
        widths = (measure_cells(rows.cells(key))[index] for key in keys)
        needed_width = max(widths, default=0)
    return _fit_ids(measured, needed_width, width)


def _measure_columns(columns: Sequence[Column], rows: Rows) -> list[Column]:
    """Return the columns as wide as their cells, without empty columns at the end."""
    keys = rows.keys()
    if not keys or len(keys) > MAX_MEASURED_ROWS:
        return list(columns)
    widths = [0] * len(columns)
    for key in keys:
        widths = list(map(max, widths, measure_cells(rows.cells(key))))
    measured = [
        column
        if column.flexible or not column.title
        else replace(column, width=max(len(column.title), min(MAX_COLUMN_WIDTH, cells_width)))
        for column, cells_width in zip(columns, widths, strict=True)
    ]
    while measured[-1].drop_priority and not widths[len(measured) - 1]:
        measured.pop()
    return measured


def _fit_ids(columns: list[Column], needed_width: int, width: int) -> list[Column]:
    """Return the columns with uncut ids, if that removes only dispensable columns.

    The column of ids is then not wider than the ids, so that the numbers are next to them.
    """
    fitted = [
        replace(column, width=max(len(column.title), needed_width), flexible=False)
        if column.flexible
        else column
        for column in columns
    ]
    layout = lay_out(fitted, width)
    shown_keys = {placed.column.key for placed in layout.placed}
    left_out = [column for column in fitted if column.key not in shown_keys]
    if layout.width <= width and all(
        column.drop_priority >= DROPPABLE_PRIORITY for column in left_out
    ):
        return fitted
    return columns
