"""The drawing of a line table: the lines in view, each again only when it has changed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.segment import Segment
from textual.cache import LRUCache
from textual.events import Resize
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from spbench.tui.widgets.component_styles import ComponentStyles
from spbench.tui.widgets.fitting import fit
from spbench.tui.widgets.table_columns import MARGIN, Column, Layout, lay_out
from spbench.tui.widgets.table_lines import (
    add_heading_marks,
    count_fixed_cells,
    crop_line,
    render_heading,
    render_row,
)
from spbench.tui.widgets.table_order import RowOrder

_KEPT_STRIPS = 1024


class TableView(ScrollView):
    """Draws the heading and the rows of an order, with the columns that fit.

    Args:
        columns: The columns from left to right.
        order: The rows to show.
        empty: What stands there while there are no rows.
        id: The widget's id.
        classes: The widget's classes.
    """

    paused: reactive[bool] = reactive(False, init=False)
    """Whether keys, order and cells stay as they are, while the page's counters go on."""

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
        self._fitted = Layout()
        self._every_column = False
        self._cursor = 0
        self._painted: dict[int, object] = {}
        self._row_strips: LRUCache[object, Strip] = LRUCache(_KEPT_STRIPS)
        self._style = ComponentStyles(self, "line-table")

    @property
    def columns(self) -> Sequence[Column]:
        """All columns from left to right, shown or left out."""
        return self._columns

    def _use_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns; sorted by one that is gone, rows are in natural order again."""
        self._columns = tuple(columns)
        if all(column.key != self._order.sort for column in columns):
            self._order.sort = None
            self._order.reverse = False
        self._fit_columns()

    def on_resize(self, _: Resize) -> None:
        """Choose the columns that fit now."""
        self._fit_columns()

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """Put the scroll bar where the rows are: hidden, it was told of no scrolling."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def notify_style_update(self) -> None:
        """Forget what was drawn in the colours of before."""
        super().notify_style_update()
        self._style.clear()
        self._row_strips.clear()

    def action_wide(self) -> None:
        """Show all columns, or those that fit."""
        self._every_column = not self._every_column
        self._fit_columns()

    def action_sideways(self, way: int) -> None:
        """Scroll by a column; to the right of those that fit are the ones that were left out."""
        if way > 0 and self._fitted.left_out and self.scroll_offset.x >= self.max_scroll_x:
            self.action_wide()
        at = self.scroll_offset.x
        fixed = count_fixed_cells(self._fitted, self._width)
        stops = [place.x - (fixed or MARGIN) for place in self._fitted.placed]
        ahead = [stop for stop in stops if (stop - at) * way > 0]
        if ahead:
            self.scroll_target_x = self.scroll_x = min(ahead, key=lambda stop: abs(stop - at))

    def render_line(self, y: int) -> Strip:
        """Return a line of the widget; line 0 is the heading."""
        if y == 0:
            return self._heading()
        scroll = self.scroll_offset
        width = self.size.width
        keys = self._order.keys
        place = scroll.y + y - 1
        self._painted[y] = self._state(place)
        if place >= len(keys):
            return self._nothing(place, width)
        cursor = place == self._cursor
        line = self._row(keys[place], cursor, width)
        return crop_line(
            line, self._fitted, scroll.x, width, self._style("cursor" if cursor else "")
        )

    def _heading(self) -> Strip:
        order = self._order
        scroll = self.scroll_offset.x
        width = self._width
        line = render_heading(self._fitted, self._style, order.sort, order.reverse)
        line = crop_line(line, self._fitted, scroll, width, self._style("heading"))
        return add_heading_marks(
            line, self._style, width, self.paused, (scroll > 0, self._more_right)
        )

    @property
    def _more_right(self) -> bool:
        """Whether there are columns out of view to the right, or left out."""
        return self.scroll_offset.x < self.max_scroll_x or self._fitted.left_out > 0

    def _row(self, key: Hashable, cursor: bool, width: int) -> Strip:
        rows = self._order.rows
        known = (key, rows.version(key), cursor)
        strip = self._row_strips.get(known)
        if strip is None:
            cells = rows.cells(key)
            strip = render_row(cells, self._fitted, self._style, cursor=cursor, min_width=width)
            self._row_strips[known] = strip
        return strip

    def _nothing(self, place: int, width: int) -> Strip:
        """A line without a row; the first one says why there is none."""
        words = ""
        if place == 0:
            looked_for = " ".join(self._order.filter_words)
            words = f"no row matches {looked_for!r}" if self._order.total else self._empty
        return Strip([Segment(fit(words, width), self._style("muted"))], width)

    def _state(self, place: int) -> object:
        """The content of a line, which is drawn again where this has changed."""
        keys = self._order.keys
        if place >= len(keys):
            return place == 0, self._order.total > 0
        key = keys[place]
        return key, self._order.rows.version(key), place == self._cursor

    def _repaint(self) -> None:
        """Draw the lines in view that show something else by now."""
        width = self._width
        above = self.scroll_offset.y - 1
        changed = [
            Region(0, y, width, 1)
            for y in range(1, self.size.height)
            if self._painted.get(y) != self._state(above + y)
        ]
        if changed:
            self.refresh(*changed)

    def _fit_columns(self) -> None:
        self._fitted = lay_out(self._columns, self._width, self._every_column)
        self._row_strips.clear()
        self._resize_contents()
        self.refresh()

    def _resize_contents(self) -> None:
        self.virtual_size = Size(self._fitted.width, len(self._order.keys) + 1)

    @property
    def _width(self) -> int:
        """Cells for columns: all but the scroll bar's."""
        return max(0, self.scrollable_content_region.width)

    @property
    def _lines(self) -> int:
        """Lines for rows, at least one."""
        return max(1, self.size.height - 1)
