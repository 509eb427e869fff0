"""Rendering of a table's heading and rows as strips of styled cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from spbench.tui.widgets.table_columns import MARGIN, Layout, PlacedColumn, TableCell
from spbench.tui.widgets.text import ComponentStyles, fit, merge_segments

_CURSOR_MARK = "▸"
_PAUSED_MARK = " held "


def render_row(
    cells: Sequence[TableCell | str],
    layout: Layout,
    styles: ComponentStyles,
    *,
    cursor: bool = False,
    min_width: int = 0,
) -> Strip:
    """Return a row in the whole width of the layout.

    Args:
        cells: The cells of the row, for all columns.
        layout: The columns to show.
        styles: The styles of the table.
        cursor: Whether the cursor is on the row. It has a mark as well as a colour.
        min_width: Smallest width in cells, so that the line need not be extended later.
    """
    row_style = "cursor" if cursor else ""
    plain_style = styles(row_style)
    pieces = [((_CURSOR_MARK if cursor else "").ljust(MARGIN), plain_style)]
    x = MARGIN
    for placed in layout.placed:
        cell = cells[placed.index]
        text, cell_style = (cell, "") if isinstance(cell, str) else (cell.text, cell.style)
        if placed.x > x:
            pieces.append((" " * (placed.x - x), plain_style))
        style = styles(f"{row_style} {cell_style}") if cell_style else plain_style
        fitted = fit(text, placed.width, placed.column.align)
        # Only the text has the style of the cell, which may be underlined.
        shown_text = fitted.strip(" ")
        left, _, right = fitted.partition(shown_text) if shown_text else (fitted, "", "")
        pieces += [(left, plain_style), (shown_text, style), (right, plain_style)]
        x = placed.x + placed.width
    pieces.append((" " * (min_width - x), plain_style))
    return Strip(merge_segments(pieces), max(min_width, x))


def render_heading(
    layout: Layout, styles: ComponentStyles, sort: str | None, reverse: bool
) -> Strip:
    """Return the titles in the width of the layout; an arrow marks the sort column."""
    plain_style = styles("heading")
    pieces = [(" " * MARGIN, plain_style)]
    x = MARGIN
    for placed in layout.placed:
        arrow = ""
        style = plain_style
        if placed.column.key == sort:
            arrow = "▼" if reverse else "▲"
            style = styles("heading sorted")
        pieces.append((" " * (placed.x - x), plain_style))
        pieces.append((_render_title(placed, arrow), style))
        x = placed.x + placed.width
    return Strip(merge_segments(pieces), x)


def _render_title(placed: PlacedColumn, arrow: str) -> str:
    """Return a title and its arrow; if the width is too small, only the title is cut."""
    title = placed.column.title
    text = fit(title, min(len(title), placed.width - len(arrow))) + arrow
    return fit(text, placed.width, placed.column.align)


def count_fixed_cells(layout: Layout, width: int) -> int:
    """Return the width of the part that does not scroll: the first column, if narrow."""
    if len(layout.placed) < 2 or layout.placed[1].x > width // 2:
        return 0
    return layout.placed[1].x


def crop_line(line: Strip, layout: Layout, scroll: int, width: int, fill: Style) -> Strip:
    """Return the part in view of a line that is scrolled by ``scroll`` cells.

    A column that is cut at an edge is blank: half a number looks like another number.
    """
    fixed_width = count_fixed_cells(layout, width) if scroll else 0
    for placed in layout.placed[1:]:
        end = placed.x + placed.width
        is_cut = any(placed.x < edge < end for edge in (fixed_width + scroll, width + scroll))
        if is_cut and not placed.column.flexible:
            blank = Strip([Segment(" " * placed.width, fill)], placed.width)
            line = Strip.join([line.crop(0, placed.x), blank, line.crop(end)])
    if scroll:
        line = Strip.join([line.crop(0, fixed_width), line.crop(fixed_width + scroll)])
    return line if line.cell_length == width else line.crop_extend(0, width, fill)


def add_heading_marks(
    heading: Strip, styles: ComponentStyles, width: int, paused: bool, hidden: tuple[bool, bool]
) -> Strip:
    """Return the heading in view with marks at its ends.

    Args:
        heading: Exactly ``width`` cells.
        styles: The styles of the table.
        width: Number of cells in view.
        paused: Whether the table is paused, which the heading shows.
        hidden: Whether there are more columns to the left, and to the right.
    """
    left, right = hidden
    note = _PAUSED_MARK.strip() if width < len(_PAUSED_MARK) + 2 else _PAUSED_MARK
    end = ((note if paused else "") + ("»" if right else ""))[-width:] if width > 0 else ""
    start = "«" if left and width > len(end) else ""
    parts = [
        Strip([Segment(start, styles("heading sorted"))], len(start)),
        heading.crop(len(start), width - len(end)),
        Strip([Segment(end, styles("heading paused" if paused else "heading sorted"))], len(end)),
    ]
    return Strip.join([part for part in parts if part.cell_length])
