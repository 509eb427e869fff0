"""A heat map of a matrix: darker cells are worse than the median."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Offset

from spbench.record.findings import NOTABLE_LINK
from spbench.record.number_formatting import format_number, format_value
from spbench.report.scale import drop_infinite
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.glyphs import (
    choose_slowness_mark,
    format_ratio,
    render_slowness_legend,
)
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import cell_width, fit, join_fitting

_NUMBER_WIDTH = 8
"""Cells of a column with numbers."""
_GLYPH_WIDTH = 2
"""Cells of a column with glyphs only."""
_MAX_LABEL_WIDTH = 24
"""Cells of labels that may be cut to make space for the columns."""
_LEGEND_GAP = "  "
_NOT_MEASURED = "not measured"
_HOW_TO_READ = "arrow keys show a cell's value"

Matrix = Sequence[Sequence[float | None]]
"""A list of values per row, with None for a missing value."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """The rows and columns in view, and the cells of the labels and of each column."""

    rows: range
    columns: range
    label_width: int
    column_width: int


class HeatMap(Chart):
    """A matrix with labels; each cell has a glyph, and a number if the width suffices."""

    HELP: ClassVar[str] = (
        "Values from the row's label to the column's, compared with the median: ░ normal,\n"
        "▒ from 1.17x, ▓ slow from 1.5x, █ from 2.5x, · not measured. If they fit, numbers\n"
        "are next to the sign.\n"
        "Arrows, Home, End or a click read a cell out, Escape lets it go; the wheel scrolls."
    )
    HEIGHT: ClassVar[int] = 12
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("map.up", "up", "row(-1)", "Up", "The row above"),
        make_binding("map.down", "down", "row(1)", "Down", "The row below"),
    ]

    NOTABLE: ClassVar[float] = NOTABLE_LINK
    """The ratio to the median from which a cell is notable."""

    empty_text = "nothing measured"
    _rows: Sequence[str] = ()
    _columns: Sequence[str] = ()
    _values: Matrix = ()
    _slowness: Matrix = ()
    _unit = ""
    _better = "none"
    _median: float | None = None
    _top = 0
    _left = 0

    def update(
        self,
        labels: Sequence[str],
        values: Matrix,
        unit: str,
        better: str,
        columns: Sequence[str] | None = None,
        slowness: Matrix | None = None,
    ) -> None:
        """Show another matrix.

        Args:
            labels: Labels of the rows.
            values: The measured values.
            unit: The unit of the values.
            better: ``lower``, ``higher`` or ``none``: which values are better.
            columns: Labels of the columns. Default: those of the rows.
            slowness: How many times worse each value is than the median of its kind. Default: all
                values are of one kind.

        Raises:
            ValueError: The shape of values or slowness does not match the labels.
        """
        column_labels = labels if columns is None else columns
        for matrix in (values, values if slowness is None else slowness):
            if len(matrix) != len(labels) or any(len(row) != len(column_labels) for row in matrix):
                raise ValueError(f"the matrix is not {len(labels)} rows of {len(column_labels)}")
        self._rows = tuple(labels)
        self._columns = tuple(column_labels)
        self._values = [[drop_infinite(value) for value in row] for row in values]
        self._unit = unit
        self._better = better
        numbers = [value for row in self._values for value in row if value is not None]
        median = statistics.median_high if better == "higher" else statistics.median_low
        self._median = median(numbers) if numbers else None
        self._slowness = slowness or [
            [self._compute_slowness(value) for value in row] for row in self._values
        ]
        self.redraw()

    def count_rows(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def count_hidden_rows(self) -> int:
        """Return the number of rows that do not fit."""
        return len(self._rows) - len(self._compute_frame(*self.size).rows)

    def reveal_row(self, row: int) -> None:
        """Scroll just far enough to bring a row into view."""
        rows = self._compute_frame(*self.size).rows
        self._top = max(row - len(rows) + 1, min(rows.start, row))
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of cells of the matrix."""
        return len(self._rows) * len(self._columns)

    def find_stop(self, offset: Offset) -> int | None:
        """Return the cell of the matrix at a cell of the widget."""
        frame = self._compute_frame(*self.size)
        row = offset.y - 1
        column = (offset.x - frame.label_width) // frame.column_width
        if 0 <= row < len(frame.rows) and 0 <= column < len(frame.columns):
            return frame.rows[row] * len(self._columns) + frame.columns[column]
        return None

    def action_row(self, direction: int) -> None:
        """Move the cursor to another row of its column."""
        if self.cursor is None:
            self.action_step(direction)
        elif 0 <= self.cursor + direction * len(self._columns) < self.count_stops():
            self.move_to(self.cursor + direction * len(self._columns))

    def handle_cursor_move(self) -> None:
        """Scroll just far enough to bring the cursor into view."""
        if self.cursor is not None:
            row, column = divmod(self.cursor, len(self._columns))
            frame = self._compute_frame(*self.size)
            self._top = max(row - len(frame.rows) + 1, min(frame.rows.start, row))
            self._left = max(column - len(frame.columns) + 1, min(frame.columns.start, column))
            self.redraw()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down, or to the right with shift or control."""
        self._scroll(event, 1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up, or to the left with shift or control."""
        self._scroll(event, -1)

    def _scroll(self, event: MouseScrollDown | MouseScrollUp, direction: int) -> None:
        before = self._compute_frame(*self.size)
        self._top = before.rows.start
        self._left = before.columns.start
        if event.shift or event.ctrl:
            self._left += direction
        else:
            self._top += direction
        if self._compute_frame(*self.size) != before:
            self.redraw()
            event.stop()

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return column labels, rows and summary; below three lines only the summary."""
        if self._median is None:
            return [[(join_fitting([self.empty_text], width), "none")]]
        summary = self._render_summary(width)
        if height < 3:
            return [summary]
        frame = self._compute_frame(width, height)
        rows = (self._render_row(row, frame) for row in frame.rows)
        return [self._render_heading(frame), *rows, summary]

    def _compute_frame(self, width: int, height: int) -> _Frame:
        """Return the part in view, from the scroll position or the last possible one."""
        widest_label = max(map(cell_width, self._rows), default=0)
        column_count = len(self._columns)
        free_width = width - column_count * _NUMBER_WIDTH - 1
        label_width = min(widest_label, max(free_width, min(_MAX_LABEL_WIDTH, width // 3))) + 1
        available_width = max(1, width - label_width)
        column_width = (
            _NUMBER_WIDTH if column_count * _NUMBER_WIDTH <= available_width else _GLYPH_WIDTH
        )
        visible_row_count = max(1, height - 2)
        visible_column_count = max(1, available_width // column_width)
        top = max(0, min(self._top, len(self._rows) - visible_row_count))
        left = max(0, min(self._left, column_count - visible_column_count))
        rows = range(top, min(len(self._rows), top + visible_row_count))
        columns = range(left, min(column_count, left + visible_column_count))
        return _Frame(rows, columns, label_width, column_width)

    def _render_heading(self, frame: _Frame) -> list[Piece]:
        """Return the ends of the column labels that fit, without their common prefix."""
        prefix = _measure_common_prefix(self._columns)
        width = frame.column_width - 1
        names = [self._columns[column][prefix:][-width:] for column in frame.columns]
        labels = "".join(f"{fit(name, width, 'right')} " for name in names)
        return [(" " * frame.label_width + labels, "axis")]

    def _render_row(self, row: int, frame: _Frame) -> list[Piece]:
        label = fit(self._rows[row], frame.label_width - 1) + " "
        cells = (self._render_cell(row, column, frame.column_width) for column in frame.columns)
        return [(label, "axis"), *cells]

    def _render_cell(self, row: int, column: int, width: int) -> Piece:
        value = self._values[row][column]
        slowness = self._slowness[row][column]
        if value is not None and slowness is None:
            slowness = 1.0
        glyph, style = choose_slowness_mark(slowness, self.NOTABLE, ascii=self.ascii)

        end = " "
        if self.cursor == row * len(self._columns) + column:
            style += " cursor"
            end = "<" if self.ascii else "◂"
        number = ""
        if value is not None and width > _GLYPH_WIDTH:
            number = fit(format_number(value), width - 3, "right") + " "
        return fit(number + glyph, width - 1, "right") + end, style

    def _compute_slowness(self, value: float | None) -> float | None:
        """Return how many times worse a value is than the median; 1 if no value is better."""
        if value is None or self._median is None:
            return None
        worse, better = (value, self._median) if self._better == "lower" else (self._median, value)
        if self._better == "none" or better <= 0:
            return 1.0
        return worse / better

    def _render_summary(self, width: int) -> list[Piece]:
        """Return the line below the cells."""
        parts = self._summarize()
        legend = self._render_legend(width - cell_width(parts[0]) - len(_LEGEND_GAP))
        if legend:
            return [(f"{parts[0]}{_LEGEND_GAP}", "text"), *legend]
        return [(join_fitting(parts, width), "text")]

    def _render_legend(self, width: int) -> list[Piece]:
        """Return the meaning of the glyphs; empty with a cursor, or if it does not fit."""
        if self.cursor is not None or self._better == "none":
            return []
        legend = render_slowness_legend(
            width, self.NOTABLE, unknown=_NOT_MEASURED, ascii=self.ascii
        )
        return legend if legend and legend[-1][0].endswith(_NOT_MEASURED) else []

    def _summarize(self) -> list[str]:
        if self.cursor is None:
            shape = f"{len(self._rows)} x {len(self._columns)}"
            hidden_count = self.count_hidden_rows()
            if hidden_count:
                row_count = len(self._rows)
                shape = f"{row_count - hidden_count} of {row_count} rows"
            median = format_value(self._median or 0.0, self._unit)
            summary = f"{shape}, median {median}"
            return [summary] if self._prints_all_values() else [summary, _HOW_TO_READ]
        row, column = divmod(self.cursor, len(self._columns))
        value = self._values[row][column]
        pair = f"{self._rows[row]} -> {self._columns[column]}"
        if value is None:
            return [f"{pair}: {_NOT_MEASURED}"]
        ratio = self._compare_with_median(row, column, value)
        return [f"{pair}: {format_value(value, self._unit)}", ratio]

    def _prints_all_values(self) -> bool:
        frame = self._compute_frame(*self.size)
        is_whole = len(frame.rows) == len(self._rows) and len(frame.columns) == len(self._columns)
        return is_whole and frame.column_width == _NUMBER_WIDTH

    def _compare_with_median(self, row: int, column: int, value: float) -> str:
        """Return a value as a multiple of the median of its kind."""
        slowness = self._slowness[row][column]
        if slowness and self._better != "none":
            return format_ratio(slowness if self._better == "lower" else 1 / slowness)
        return format_ratio(value / self._median) if self._median else ""


def _measure_common_prefix(labels: Sequence[str]) -> int:
    """Return the number of characters that all labels start with; 0 for one label."""
    length = 0
    for letters in zip(*labels, strict=False):
        if len(labels) < 2 or len(set(letters)) > 1:
            break
        length += 1
    return length
