"""A matrix of figures: darker where they are worse than is usual of them."""

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
from spbench.tui.widgets.fitting import cell_width, fit, join_fitting
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.steps import format_ratio, slowness_mark

_NUMBER = 7
_GLYPH = 2
"""Cells of a column with numbers, and with glyphs alone."""
_WIDEST_LABEL = 16


Matrix = Sequence[Sequence[float | None]]
"""One list a row, one value a column; None where there is none."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """The rows and columns in view, and the cells that labels and columns take."""

    rows: range
    columns: range
    margin: int
    wide: int


class HeatMap(Chart):
    """Rows and columns by label; numbers where there is room, else a glyph by step."""

    HELP: ClassVar[str] = (
        "Figures from the row's label to the column's: ░ near the median, ▒ and ▓ worse,\n"
        "█ far worse, · not measured. Numbers stand beside the sign where there is room.\n"
        "Arrows, home, end or a click read a cell out, escape lets it go; the wheel scrolls."
    )
    HEIGHT: ClassVar[int] = 12
    BINDINGS: ClassVar[list[BindingType]] = [
        key("map.up", "up", "row(-1)", "Up", "The row above"),
        key("map.down", "down", "row(1)", "Down", "The row below"),
    ]

    _rows: Sequence[str] = ()
    _columns: Sequence[str] = ()
    _values: Matrix = ()
    _slowness: Matrix = ()
    _unit = ""
    _better = "none"
    _usual: float | None = None
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
            labels: The rows' labels, and the columns' where ``columns`` is not given.
            values: What was measured.
            unit: The values' unit.
            better: ``lower``, ``higher`` or ``none``: which of them are the good ones.
            columns: The columns' labels, where they are not the rows'.
            slowness: How many times worse each is than the median of its kind. Where it is not
                given, all are of one kind.

        Raises:
            ValueError: If values or slowness do not match the labels.
        """
        across = labels if columns is None else columns
        for matrix in (values, values if slowness is None else slowness):
            if len(matrix) != len(labels) or any(len(row) != len(across) for row in matrix):
                raise ValueError(f"the matrix is not {len(labels)} rows of {len(across)}")
        self._rows = tuple(labels)
        self._columns = tuple(across)
        self._values = [[drop_infinite(value) for value in row] for row in values]
        self._unit = unit
        self._better = better
        known = [value for row in self._values for value in row if value is not None]
        middle = statistics.median_high if better == "higher" else statistics.median_low
        self._usual = middle(known) if known else None
        self._slowness = slowness or [
            [self._slower(value) for value in row] for row in self._values
        ]
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of cells."""
        return len(self._rows) * len(self._columns)

    def find_stop(self, at: Offset) -> int | None:
        """Return the cell of the matrix at a cell of the widget."""
        frame = self._frame(*self.size)
        row = at.y - 1
        column = (at.x - frame.margin) // frame.wide
        if 0 <= row < len(frame.rows) and 0 <= column < len(frame.columns):
            return frame.rows[row] * len(self._columns) + frame.columns[column]
        return None

    def action_row(self, way: int) -> None:
        """Move the cursor to another row of its column."""
        if self.cursor is None:
            self.action_step(way)
        elif 0 <= self.cursor + way * len(self._columns) < self.count_stops():
            self.move_to(self.cursor + way * len(self._columns))

    def handle_cursor_move(self) -> None:
        """Scroll so far that the cursor is in view."""
        if self.cursor is not None:
            row, column = divmod(self.cursor, len(self._columns))
            frame = self._frame(*self.size)
            top = max(row - len(frame.rows) + 1, min(frame.rows.start, row))
            left = max(column - len(frame.columns) + 1, min(frame.columns.start, column))
            self._top = top
            self._left = left
            self.redraw()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down, or to the right with shift or control."""
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up, or to the left with shift or control."""
        self._wheel(event, -1)

    def _wheel(self, event: MouseScrollDown | MouseScrollUp, way: int) -> None:
        across = event.shift or event.ctrl
        before = self._frame(*self.size)
        self._top = before.rows.start + way * (not across)
        self._left = before.columns.start + way * across
        if self._frame(*self.size) != before:
            self.redraw()
            event.stop()

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return the columns' labels, the rows and the words; words alone below three lines."""
        if self._usual is None:
            return [[(join_fitting(["nothing measured yet"], width), "none")]]
        words: list[Piece] = [(join_fitting(self._phrases(), width), "words")]
        if height < 3:
            return [words]
        frame = self._frame(width, height)
        return [self._heading(frame), *(self._line(row, frame) for row in frame.rows), words]

    def _frame(self, width: int, height: int) -> _Frame:
        """The part in view from the place that was scrolled to, or from the last that there is."""
        widest = max(map(cell_width, self._rows), default=0)
        margin = min(widest, _WIDEST_LABEL, width // 3) + 1
        room = max(1, width - margin)
        many = len(self._columns)
        wide = _NUMBER if many * _NUMBER <= room else _GLYPH
        lines = max(1, height - 2)
        shown = max(1, room // wide)
        top = max(0, min(self._top, len(self._rows) - lines))
        left = max(0, min(self._left, many - shown))
        rows = range(top, min(len(self._rows), top + lines))
        return _Frame(rows, range(left, min(many, left + shown)), margin, wide)

    def _heading(self, frame: _Frame) -> list[Piece]:
        """The columns' labels, without what all begin with, as much of their ends as fits."""
        common = _common(self._columns)
        most = frame.wide - 1
        names = [self._columns[column][common:][-most:] for column in frame.columns]
        return [
            (" " * frame.margin + "".join(f"{fit(name, most, 'right')} " for name in names), "axis")
        ]

    def _line(self, row: int, frame: _Frame) -> list[Piece]:
        label = fit(self._rows[row], frame.margin - 1) + " "
        cells_of_row = (self._cell(row, column, frame.wide) for column in frame.columns)
        return [(label, "axis"), *cells_of_row]

    def _cell(self, row: int, column: int, wide: int) -> Piece:
        value = self._values[row][column]
        slower = self._slowness[row][column]
        if value is not None and slower is None:
            slower = 1.0
        glyph, style = slowness_mark(slower, NOTABLE_LINK, ascii=self.ascii)
        chosen = self.cursor == row * len(self._columns) + column
        style += " cursor" if chosen else ""
        figure = ""
        if value is not None and wide > _GLYPH:
            figure = fit(format_number(value), wide - 2, "right")
        end = ("<" if self.ascii else "◂") if chosen else " "
        return fit(figure + glyph, wide - 1, "right") + end, style

    def _slower(self, value: float | None) -> float | None:
        """The factor by which the value is worse than the usual; 1 where neither way is better."""
        if value is None or self._usual is None:
            return None
        worse, better = (value, self._usual) if self._better == "lower" else (self._usual, value)
        if self._better == "none" or better <= 0:
            return 1.0
        return worse / better

    def _phrases(self) -> list[str]:
        usual_value = format_value(self._usual or 0.0, self._unit)
        if self.cursor is None:
            size = f"{len(self._rows)} x {len(self._columns)}"
            return [f"{size}, median {usual_value}", "arrows read the cells out"]
        row, column = divmod(self.cursor, len(self._columns))
        value = self._values[row][column]
        where = f"{self._rows[row]} -> {self._columns[column]}"
        if value is None:
            return [f"{where}: not measured"]
        return [f"{where}: {format_value(value, self._unit)}", self._compared(row, column, value)]

    def _compared(self, row: int, column: int, value: float) -> str:
        """The value as a multiple of what is usual of its kind."""
        slower = self._slowness[row][column]
        if slower and self._better != "none":
            return format_ratio(slower if self._better == "lower" else 1 / slower)
        return format_ratio(value / self._usual) if self._usual else ""


def _common(labels: Sequence[str]) -> int:
    """Return with how many letters all labels begin; 0 for one label."""
    common = 0
    for letters in zip(*labels, strict=False):
        if len(labels) < 2 or len(set(letters)) > 1:
            break
        common += 1
    return common
