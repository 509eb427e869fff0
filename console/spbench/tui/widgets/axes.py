"""The numbers beside and below a picture of dots."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.report.scale import Scale, format_ticks
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.fitting import cell_width, fit

_LEAST = 12
"""Cells that a picture keeps for itself: below, the numbers beside it are left out."""


def _labels(scale: Scale, rows: int) -> dict[int, str]:
    """The numbers by the row they stand in, from the bottom; every other row at most."""
    ticks = scale.ticks(max(2, min(6, rows // 2)))
    if rows == 1:
        ticks = [scale.high]
    return {
        scale.to_index(tick, rows): word
        for tick, word in zip(ticks, format_ticks(ticks, scale.log), strict=True)
    }


def measure_label_width(scale: Scale, rows: int, width: int) -> int:
    """Return the cells that numbers and axis take beside so many rows; 0 where they do not fit."""
    widest = max(map(cell_width, _labels(scale, rows).values())) + 1
    return widest if width - widest >= _LEAST else 0


def add_row_labels(
    scale: Scale, rows: int, picture: Sequence[Sequence[Piece]], width: int
) -> list[list[Piece]]:
    """Return the picture's lines with the scale's numbers to their left, in ``width`` cells."""
    if not width:
        return [list(line) for line in picture]
    labels = _labels(scale, rows)
    lines = []
    for y, line in enumerate(picture):
        word = labels.get(rows - 1 - y)
        text = fit(word or "", width - 1, "right") + ("┤" if word else "│")
        lines.append([(text, "axis"), *line])
    return lines


def render_labels(places: Sequence[tuple[int, str]], width: int) -> str:
    """Return a line with words at their places; those that would run into another are left out.

    Args:
        places: For each word the cell of its middle, ascending.
        width: The line's cells.
    """
    line = ""
    free = 0
    for middle, word in places:
        start = max(0, min(middle - cell_width(word) // 2, width - cell_width(word)))
        if start >= free and start + cell_width(word) <= width:
            line += " " * (start - cell_width(line)) + word
            free = start + cell_width(word) + 1
    return line
