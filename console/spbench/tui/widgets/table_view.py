"""The scroll view of a line table, which draws the changed lines in view."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from rich.segment import Segment
from textual.cache import LRUCache
from textual.events import Resize
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from spbench.tui.widgets.table_columns import (
    MARGIN,
    Column,
    Layout,
    TableCell,
    lay_out,
    measure_cells,
)
from spbench.tui.widgets.table_lines import (
    add_heading_marks,
    count_fixed_cells,
    crop_line,
    render_heading,
    render_row,
)
from spbench.tui.widgets.table_order import RowOrder
from spbench.tui.widgets.text import ComponentStyles, fit

_MAX_CACHED_STRIPS = 1024
_MAX_MEASURED_ROWS = 200
"""Rows that are measured before the first one is drawn; others when they come into view."""


class TableView(ScrollView):
    """A view of the heading and the rows of an order, with the columns that fit.

    Args:
        columns: The columns from left to right.
        order: The rows to show.
        empty: The text shown while there are no rows.
        id: The widget's id.
        classes: The widget's classes.
    """

    paused: reactive[bool] = reactive(False, init=False)
    """Whether rows, order and cells are frozen."""

    def __init__(
        self,
        columns: Sequence[Column],
        order: RowOrder,
        empty: str,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._order = order
        self._empty = empty
        self._layout = Layout()
        self._cell_widths = [0] * len(columns)
        self._show_all_columns = False
        self._cursor = 0
        self._painted: dict[int, object] = {}
        self._row_strips: LRUCache[object, Strip] = LRUCache(_MAX_CACHED_STRIPS)
        self._style = ComponentStyles(self, "line-table")

    def set_empty_text(self, text: str) -> None:
        """Change the text shown while there are no rows."""
        if text != self._empty:
            self._empty = text
            self.refresh()

    @property
    def columns(self) -> Sequence[Column]:
        """All columns from left to right, whether shown or left out."""
        return self._columns

    @property
    def shown_columns(self) -> Collection[str]:
        """The keys of the columns that are not left out."""
        return [placed.column.key for placed in self._layout.placed]

    def _set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns; if the sort column is gone, restore the natural order."""
        self._columns = tuple(columns)
        if all(column.key != self._order.sort_column for column in columns):
            self._order.sort_column = None
            self._order.reverse = False

    def on_resize(self, _: Resize) -> None:
        """Choose the columns that fit the new width."""
        self._fit_columns()

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """Set the position of the scroll bar, which is not updated while it is hidden."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def notify_style_update(self) -> None:
        """Discard the rows that were drawn in the previous colours."""
        super().notify_style_update()
        self._style.clear()
        self._row_strips.clear()

    def action_wide(self) -> None:
        """Show all columns, or those that fit."""
        self._show_all_columns = not self._show_all_columns
        self._place_columns()

    def action_sideways(self, direction: int) -> None:
        """Scroll by a column; beyond the last one that fits, show the columns left out."""
        if direction > 0 and self._layout.left_out and self.scroll_offset.x >= self.max_scroll_x:
            self.action_wide()
        x = self.scroll_offset.x
        fixed_width = count_fixed_cells(self._layout, self._width)
        stops = [placed.x - (fixed_width or MARGIN) for placed in self._layout.placed]
        stops_ahead = [stop for stop in stops if (stop - x) * direction > 0]
        if stops_ahead:
            self.scroll_target_x = self.scroll_x = min(stops_ahead, key=lambda stop: abs(stop - x))

    def render_line(self, y: int) -> Strip:
        """Return a line of the widget; line 0 is the heading."""
        if y == 0:
            return self._render_heading()
        scroll = self.scroll_offset
        width = self.size.width
        keys = self._order.keys
        index = scroll.y + y - 1
        self._painted[y] = self._get_state(index)
        if index >= len(keys):
            return self._render_empty(index, width)
        cursor = index == self._cursor
        line = self._render_row(keys[index], cursor, width)
        fill = self._style("cursor" if cursor else "")
        return crop_line(line, self._layout, scroll.x, width, fill)

    def _render_heading(self) -> Strip:
        order = self._order
        scroll = self.scroll_offset.x
        width = self._width
        line = render_heading(self._layout, self._style, order.sort_column, order.reverse)
        line = crop_line(line, self._layout, scroll, width, self._style("heading"))
        heading = add_heading_marks(
            line, self._style, width, self.paused, (scroll > 0, self._more_right)
        )
        return heading.extend_cell_length(self.size.width, self._style("heading"))

    @property
    def _more_right(self) -> bool:
        """Whether columns are out of view to the right, or left out."""
        return self.scroll_offset.x < self.max_scroll_x or self._layout.left_out > 0

    def _render_row(self, key: Hashable, cursor: bool, width: int) -> Strip:
        rows = self._order.rows
        cache_key = (key, rows.version(key), cursor)
        strip = self._row_strips.get(cache_key)
        if strip is None:
            cells = rows.cells(key)
            if self._measure(cells):
                self.call_later(self._place_columns)
            strip = render_row(cells, self._layout, self._style, cursor=cursor, min_width=width)
            self._row_strips[cache_key] = strip
        return strip

    def _render_empty(self, index: int, width: int) -> Strip:
        """Return a line without a row; the first one shows why there are no rows."""
        text = ""
        if index == 0:
            filter_text = " ".join(self._order.filter_words)
            no_match = f"no row matches {filter_text!r}: Escape shows all"
            text = no_match if self._order.row_count else self._empty
        return Strip([Segment(fit(text, width), self._style("muted"))], width)

    def _get_state(self, index: int) -> object:
        """Return a value that changes whenever a line has to be drawn again."""
        keys = self._order.keys
        if index >= len(keys):
            return index == 0, self._order.row_count > 0
        key = keys[index]
        return key, self._order.rows.version(key), index == self._cursor

    def _repaint(self) -> None:
        """Draw the changed lines in view."""
        width = self.size.width  # with the column of the scroll bar, which the cursor marks, too
        above = self.scroll_offset.y - 1
        changed = [
            y
            for y in range(1, self.size.height)
            if self._painted.get(y) != self._get_state(above + y)
        ]
        if not changed:
            return
        widths = self._cell_widths
        for index in (above + y for y in changed):
            if index < len(self._order.keys):
                self._render_row(self._order.keys[index], index == self._cursor, width)
        if self._cell_widths != widths:
            self._place_columns()  # before the lines are drawn, so that no cell is cut
        self.refresh(*(Region(0, y, width, 1) for y in changed))

    def _fit_columns(self) -> None:
        """Place the columns by the widths of the cells, without those of former rows."""
        self._cell_widths = [0] * len(self._columns)
        for key in self._order.keys[:_MAX_MEASURED_ROWS]:
            self._measure(self._order.rows.cells(key))
        self._place_columns()

    def _measure(self, cells: Sequence[TableCell | str]) -> bool:
        """Note the widths of a row; return whether a cell is wider than all before."""
        widths = list(map(max, self._cell_widths, measure_cells(cells)))
        if widths == self._cell_widths:
            return False
        self._cell_widths = widths
        return True

    def _place_columns(self) -> None:
        layout = lay_out(
            self._columns,
            self._width,
            self._show_all_columns,
            self._cell_widths,
            self._order.sort_column,
        )
        if layout == self._layout:
            return
        self._layout = layout
        self._row_strips.clear()
        self._resize_contents()
        self.refresh()

    def _resize_contents(self) -> None:
        self.virtual_size = Size(self._layout.width, len(self._order.keys) + 1)

    @property
    def _width(self) -> int:
        """The number of cells for columns, without the scroll bar."""
        return max(0, self.scrollable_content_region.width)

    @property
    def _lines(self) -> int:
        """The number of lines for rows, at least one."""
        return max(1, self.size.height - 1)
