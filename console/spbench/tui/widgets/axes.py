"""Axes of charts: the numbers left of a picture and below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spbench.report.scale import Scale, format_ticks
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.text import cell_width, fit

_MAX_TICKS = 6
_FINER_TICKS = 4
"""Ticks with which at least two values are round."""
_MIN_ROWS_FOR_ROUND_ENDS = 3
_MIN_DISTANT_ROWS = 7
_MIN_PICTURE_WIDTH = 12
"""If fewer cells would be left for the picture, it has no numbers at its left."""


def _choose_row_labels(scale: Scale, rows: int) -> dict[int, str]:
    """Return the numbers by row from the bottom, at most one for every two rows."""
    ticks = [scale.high] if rows == 1 else _choose_ticks(scale, rows)
    return {
        scale.to_index(tick, rows): label
        for tick, label in zip(ticks, format_ticks(ticks, scale.log), strict=True)
    }


def _choose_ticks(scale: Scale, rows: int) -> list[float]:
    """Return ticks that are equally many rows apart, if round values allow it.

    Uneven distances make a linear axis look like another scale.
    """
    max_ticks = max(2, min(_MAX_TICKS, rows // 2))
    candidates = (scale.ticks(count) for count in range(max_ticks, 1, -1))
    even = (ticks for ticks in candidates if _are_rows_even(scale, ticks, rows))
    ticks = next(even, scale.ticks(max_ticks))
    if rows >= _MIN_ROWS_FOR_ROUND_ENDS and ticks == [scale.low, scale.high]:
        # Few ticks may allow no two round values; those of a finer step are far enough apart.
        first, *_, last = scale.ticks(_FINER_TICKS)
        return [first, last]
    return ticks


def _are_rows_even(scale: Scale, ticks: Sequence[float], rows: int) -> bool:
    indexes = [scale.to_index(tick, rows) for tick in ticks]
    distances = {upper - lower for lower, upper in pairwise(indexes)}
    # One row more or less is not visible between distant ticks.
    return len(distances) == 1 or min(distances, default=0) >= _MIN_DISTANT_ROWS


def measure_label_width(scale: Scale, rows: int, width: int) -> int:
    """Return the cells of numbers and axis left of a picture; 0 if they do not fit."""
    widest = max(map(cell_width, _choose_row_labels(scale, rows).values())) + 1
    return widest if width - widest >= _MIN_PICTURE_WIDTH else 0


def add_row_labels(
    scale: Scale, rows: int, picture: Sequence[Sequence[Piece]], width: int
) -> list[list[Piece]]:
    """Return the lines of a picture with the scale's numbers left of them.

    The numbers and the axis take ``width`` cells.
    """
    if not width:
        return [list(line) for line in picture]
    label_by_row = _choose_row_labels(scale, rows)
    lines = []
    for y, line in enumerate(picture):
        label = label_by_row.get(rows - 1 - y)
        text = fit(label or "", width - 1, "right") + ("┤" if label else "│")
        lines.append([(text, "axis"), *line])
    return lines


def render_labels(labels: Sequence[tuple[int, str]], width: int) -> str:
    """Return a line with labels centred at their cells.

    The last label stays, as it names the newest value or the end of the axis. Another label that
    would overlap one that stays is left out.

    Args:
        labels: The cell of each label's middle, ascending, and its text.
        width: Number of cells of the line.
    """
    starts = [
        max(0, min(middle - cell_width(label) // 2, width - cell_width(label)))
        for middle, label in labels
    ]
    line = ""
    next_free_cell = 0
    for index, (start, (_, label)) in enumerate(zip(starts, labels, strict=True)):
        end = start + cell_width(label)
        is_last = index == len(labels) - 1
        last_free_cell = width if is_last else starts[-1] - 1
        if start >= next_free_cell and end <= last_free_cell:
            line += " " * (start - cell_width(line)) + label
            next_free_cell = end + 1
    return line
