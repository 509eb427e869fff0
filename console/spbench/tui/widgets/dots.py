"""A picture of dots: Braille, two by four in a cell, or one in a cell in plain ASCII."""

from __future__ import annotations

from itertools import groupby

Piece = tuple[str, str]
"""Text, and the words of its style."""

_BRAILLE = 0x2800
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a cell's dots: its two columns, each from the top."""


class Dots:
    """Dots by column from the left and row from the bottom, and glyphs over them by cell."""

    def __init__(self, width: int, height: int, ascii: bool = False) -> None:
        self.width = width
        self.height = height
        self._per_x, self._per_y = (1, 1) if ascii else (2, 4)
        self.columns = width * self._per_x
        self.rows = height * self._per_y
        self._ascii = ascii
        self._cells: dict[tuple[int, int], tuple[int, str]] = {}
        self._glyphs: dict[tuple[int, int], Piece] = {}

    def set(self, column: int, row: int, style: str) -> None:
        """Set a dot; its cell takes the style."""
        cell, bit = self._cell(column, row)
        bits, _ = self._cells.get(cell, (0, ""))
        self._cells[cell] = (bits | bit, style)

    def fill_column(self, column: int, low: int, high: int, style: str) -> None:
        """Set all dots of a column from one row to another."""
        top = self.rows - 1 - high
        bottom = self.rows - 1 - low
        step = self._per_y
        for y in range(top // step, bottom // step + 1):
            bits, _ = self._cells.get((column // self._per_x, y), (0, ""))
            for down in range(max(top, y * step), min(bottom, (y + 1) * step - 1) + 1):
                bits |= self._bit(column, down)
            self._cells[column // self._per_x, y] = bits, style

    def draw_line(self, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """Set the dots of a straight line, both ends with it."""
        (x0, y0) = start
        (x1, y1) = end
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            x = x0 + (x1 - x0) * step / steps
            y = y0 + (y1 - y0) * step / steps
            self.set(round(x), round(y), style)

    def put_glyph(self, column: int, row: int, glyph: str, style: str) -> None:
        """Put a glyph over the cell in which a dot is."""
        self._glyphs[self._cell(column, row)[0]] = (glyph, style)

    def draw_dashed_row(self, row: int, style: str) -> None:
        """Draw a dashed line through the cells that are empty, in the height of a dot."""
        for x in range(self.width):
            cell, _ = self._cell(x * self._per_x, row)
            if cell not in self._cells:
                self._glyphs.setdefault(cell, ("-" if self._ascii else "╌", style))

    def render_lines(self) -> list[list[Piece]]:
        """Return the picture from the top, neighbours of one style together."""
        return [self._line(y) for y in range(self.height)]

    def _line(self, y: int) -> list[Piece]:
        pieces = (self._piece((x, y)) for x in range(self.width))
        return [
            ("".join(text for text, _ in group), style)
            for style, group in groupby(pieces, key=lambda piece: piece[1])
        ]

    def _piece(self, cell: tuple[int, int]) -> Piece:
        if cell in self._glyphs:
            return self._glyphs[cell]
        bits, style = self._cells.get(cell, (0, ""))
        if not bits:
            return " ", ""
        return ("*" if self._ascii else chr(_BRAILLE + bits)), style

    def _cell(self, column: int, row: int) -> tuple[tuple[int, int], int]:
        """The cell of a dot, from the top left, and the dot's bit in it."""
        down = self.rows - 1 - row
        return (column // self._per_x, down // self._per_y), self._bit(column, down)

    def _bit(self, column: int, down: int) -> int:
        return 1 if self._ascii else _BITS[column % 2][down % 4]
