"""A picture of dots: Braille with 2 x 4 dots per cell, or ASCII with one dot."""

from __future__ import annotations

from itertools import groupby

Piece = tuple[str, str]
"""A text and the names of its styles, separated by spaces."""

_BRAILLE = 0x2800
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a cell's dots: its two columns, each from the top."""


class Dots:
    """Dots by column from the left and row from the bottom, with glyphs on top."""

    def __init__(self, width: int, height: int, ascii: bool = False) -> None:
        self.width = width
        self.height = height
        self._columns_per_cell, self._rows_per_cell = (1, 1) if ascii else (2, 4)
        self.columns = width * self._columns_per_cell
        self.rows = height * self._rows_per_cell
        self._ascii = ascii
        self._cells: dict[tuple[int, int], tuple[int, str]] = {}
        self._glyphs: dict[tuple[int, int], Piece] = {}

    def set(self, column: int, row: int, style: str) -> None:
        """Set a dot and the style of its cell."""
        cell, bit = self._find_cell(column, row)
        bits, _ = self._cells.get(cell, (0, ""))
        self._cells[cell] = (bits | bit, style)

    def fill_column(self, column: int, low: int, high: int, style: str) -> None:
        """Set all dots of a column from row ``low`` to row ``high``."""
        top = self.rows - 1 - high
        bottom = self.rows - 1 - low
        step = self._rows_per_cell
        for y in range(top // step, bottom // step + 1):
            bits, _ = self._cells.get((column // self._columns_per_cell, y), (0, ""))
            for row_from_top in range(max(top, y * step), min(bottom, (y + 1) * step - 1) + 1):
                bits |= self._get_bit(column, row_from_top)
            self._cells[column // self._columns_per_cell, y] = bits, style

    def draw_line(self, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """Set the dots of a straight line, including both ends."""
        first_column, first_row = start
        last_column, last_row = end
        steps = max(abs(last_column - first_column), abs(last_row - first_row), 1)
        for step in range(steps + 1):
            column = first_column + (last_column - first_column) * step / steps
            row = first_row + (last_row - first_row) * step / steps
            self.set(round(column), round(row), style)

    def put_glyph(self, column: int, row: int, glyph: str, style: str) -> None:
        """Draw a glyph over the cell of a dot."""
        cell, _ = self._find_cell(column, row)
        self._glyphs[cell] = (glyph, style)

    def draw_dashed_row(self, row: int, style: str) -> None:
        """Draw a dashed line through the empty cells at the height of a dot."""
        for x in range(self.width):
            cell, _ = self._find_cell(x * self._columns_per_cell, row)
            if cell not in self._cells:
                self._glyphs.setdefault(cell, ("-" if self._ascii else "╌", style))

    def render_lines(self) -> list[list[Piece]]:
        """Return the lines from the top, neighbours with the same style joined."""
        return [self._render_line(y) for y in range(self.height)]

    def _render_line(self, y: int) -> list[Piece]:
        pieces = (self._render_cell((x, y)) for x in range(self.width))
        return [
            ("".join(text for text, _ in group), style)
            for style, group in groupby(pieces, key=lambda piece: piece[1])
        ]

    def _render_cell(self, cell: tuple[int, int]) -> Piece:
        if cell in self._glyphs:
            return self._glyphs[cell]
        bits, style = self._cells.get(cell, (0, ""))
        if not bits:
            return " ", ""
        return ("*" if self._ascii else chr(_BRAILLE + bits)), style

    def _find_cell(self, column: int, row: int) -> tuple[tuple[int, int], int]:
        """Return the cell of a dot, counted from the top left, and the dot's bit in it."""
        row_from_top = self.rows - 1 - row
        cell = (column // self._columns_per_cell, row_from_top // self._rows_per_cell)
        return cell, self._get_bit(column, row_from_top)

    def _get_bit(self, column: int, row_from_top: int) -> int:
        return 1 if self._ascii else _BITS[column % 2][row_from_top % 4]
