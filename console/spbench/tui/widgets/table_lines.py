"""The lines of a table: its heading and its rows, as strips of styled cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from spbench.tui.widgets.component_styles import ComponentStyles, merge_segments
from spbench.tui.widgets.fitting import fit
from spbench.tui.widgets.table_columns import MARGIN, Layout, PlacedColumn, TableCell

_CURSOR = "▸"
_PAUSED = " paused "


def render_row(
    cells: Sequence[TableCell | str],
    layout: Layout,
    styles: ComponentStyles,
    *,
    cursor: bool = False,
    min_width: int = 0,
) -> Strip:
    """Return a row in the layout's whole width; the cursor has a mark beside its colour.

    Args:
        cells: The row's cells, of all columns.
        layout: The columns to show.
        styles: The table's styles.
        cursor: Whether the cursor stands on the row.
        least: The cells to fill at least, so that a line need not be made longer later.
    """
    under = "cursor" if cursor else ""
    plain = styles(under)
    pieces = [((_CURSOR if cursor else "").ljust(MARGIN), plain)]
    x = MARGIN
    for place in layout.placed:
        cell = cells[place.index]
        words, word = (cell, "") if isinstance(cell, str) else (cell.text, cell.style)
        if place.x > x:
            pieces.append((" " * (place.x - x), plain))
        style = styles(f"{under} {word}") if word else plain
        pieces.append((fit(words, place.width, place.column.align), style))
        x = place.x + place.width
    pieces.append((" " * (min_width - x), plain))
    return Strip(merge_segments(pieces), max(min_width, x))


def render_heading(
    layout: Layout, styles: ComponentStyles, sort: str | None, reverse: bool
) -> Strip:
    """Return the titles in the layout's whole width; an arrow marks the sorted column."""
    plain = styles("heading")
    pieces = [(" " * MARGIN, plain)]
    x = MARGIN
    for place in layout.placed:
        chosen = place.column.key == sort
        arrow = ("▼" if reverse else "▲") if chosen else ""
        pieces.append((" " * (place.x - x), plain))
        pieces.append((_title(place, arrow), styles("heading sorted") if chosen else plain))
        x = place.x + place.width
    return Strip(merge_segments(pieces), x)


def _title(place: PlacedColumn, arrow: str) -> str:
    """A title whose arrow is seen even if the title has to be cut."""
    title = place.column.title
    text = fit(title, min(len(title), place.width - len(arrow))) + arrow
    return fit(text, place.width, place.column.align)


def count_fixed_cells(layout: Layout, width: int) -> int:
    """Return the cells at the left that do not scroll: the first column, unless it is wide."""
    if len(layout.placed) < 2 or layout.placed[1].x > width // 2:
        return 0
    return layout.placed[1].x


def crop_line(line: Strip, layout: Layout, scroll: int, width: int, fill: Style) -> Strip:
    """Return what is in view of a line that is scrolled by so many cells."""
    if scroll:
        fixed = count_fixed_cells(layout, width)
        line = Strip.join([line.crop(0, fixed), line.crop(fixed + scroll)])
    return line if line.cell_length == width else line.crop_extend(0, width, fill)


def add_heading_marks(
    heading: Strip, styles: ComponentStyles, width: int, paused: bool, hidden: tuple[bool, bool]
) -> Strip:
    """Return the heading in view with marks at its ends.

    Args:
        heading: Exactly ``width`` cells.
        styles: The table's styles.
        width: The cells in view.
        paused: Whether the table stands still: the heading says so.
        hidden: Whether there are more columns to the left, and to the right.
    """
    left, right = hidden
    note = _PAUSED.strip() if width < len(_PAUSED) + 2 else _PAUSED
    end = ((note if paused else "") + ("»" if right else ""))[-width:] if width > 0 else ""
    begin = "«" if left and width > len(end) else ""
    parts = [
        Strip([Segment(begin, styles("heading sorted"))], len(begin)),
        heading.crop(len(begin), width - len(end)),
        Strip([Segment(end, styles("heading paused" if paused else "heading sorted"))], len(end)),
    ]
    return Strip.join([part for part in parts if part.cell_length])
