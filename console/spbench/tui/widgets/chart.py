"""The base class of all charts: lines drawn once per size, and a cursor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click
from textual.geometry import Offset, Size
from textual.strip import Strip
from textual.widget import Widget

from spbench.record.number_formatting import replace_controls
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import ComponentStyles, fit, merge_segments

SERIES_COLOURS = 6
"""Number of series with different colours; further series start again with the first colour."""
_STYLE_NAMES = (
    *("title", "axis", "text", "line", "bar", "over", "limit", "mark", "cursor", "failed", "none"),
    "filled",
    *(f"step-{step}" for step in range(4)),
    *(f"series-{series}" for series in range(SERIES_COLOURS)),
)


class Chart(Widget, can_focus=True):
    """A drawing of numbers with a cursor that moves along them.

    A subclass draws in `draw`, returns the number of cursor positions (stops) from `count_stops`,
    and calls `redraw` when its numbers change. The cursor is None until the user moves it.

    Args:
        id: The widget's id.
        classes: The widget's classes.
        ascii: Whether to draw with ASCII characters only.
    """

    HELP: ClassVar[str] = ""
    HEIGHT: ClassVar[int] = 8
    """Number of lines if the height is automatic."""
    CAN_CLEAR_CURSOR: ClassVar[bool] = True
    """Whether escape removes the cursor."""
    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("chart.left", "left", "step(-1)", "Left", "To the left"),
        make_binding("chart.right", "right", "step(1)", "Right", "To the right"),
        make_binding("chart.first", "home", "edge(0)", "First", "To the first"),
        make_binding("chart.last", "end", "edge(-1)", "Last", "To the last"),
        make_binding("chart.all", "escape", "clear_cursor", "All", "All in words again"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"chart--{name}" for name in _STYLE_NAMES}
    DEFAULT_CSS = """
    Chart {
        width: 1fr; height: 1fr; background: transparent; color: $foreground;
        & > .chart--title { text-style: bold; }
        &:focus > .chart--title { text-style: bold underline; }
        & > .chart--axis { color: $text-muted; }
        & > .chart--line { color: $text-primary; }
        & > .chart--bar { color: $primary 70%; }
        & > .chart--over { color: $text-error; text-style: bold; }
        & > .chart--limit { color: $text-warning; }
        & > .chart--mark { color: $text-accent; text-style: bold; }
        & > .chart--cursor { text-style: reverse; }
        &:focus > .chart--cursor { text-style: bold reverse; }
        & > .chart--failed { color: $text-error; text-style: bold; }
        & > .chart--none { color: $text-muted; }
        & > .chart--filled { text-style: reverse; }
        & > .chart--step-0 { color: $text-success; }
        & > .chart--step-1 { color: $text-accent; }
        & > .chart--step-2 { color: $text-warning; }
        & > .chart--step-3 { color: $text-error; text-style: bold; }
        & > .chart--series-0 { color: $text-primary; }
        & > .chart--series-1 { color: $text-warning; }
        & > .chart--series-2 { color: $text-success; }
        & > .chart--series-3 { color: $text-error; }
        & > .chart--series-4 { color: $foreground; }
        & > .chart--series-5 { color: $text-secondary; }
    }
    """

    def __init__(
        self, *, id: str | None = None, classes: str | None = None, ascii: bool = False
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.ascii = ascii
        self.cursor: int | None = None
        self._lines: list[Strip] | None = None
        self._lines_size = Size()
        self._style = ComponentStyles(self, "chart")

    @abstractmethod
    def draw(self, width: int, height: int) -> Sequence[Sequence[Piece]]:
        """Return the lines from the top, each as pieces of text with their styles.

        Args:
            width: Cells of the widget, at least 1. Longer lines are cut.
            height: Lines of the widget, at least 1. Further lines are not shown.
        """

    def count_stops(self) -> int:
        """Return the number of positions of the cursor."""
        return 0

    def stride(self) -> int:
        """Return the number of stops by which a key moves the cursor."""
        return 1

    def find_stop(self, offset: Offset) -> int | None:
        """Return the stop at a cell of the widget; None if there is none."""
        return None

    def handle_cursor_move(self) -> None:
        """Handle a move of the cursor by the user."""

    def redraw(self) -> None:
        """Draw all again, because the numbers or the cursor have changed."""
        self._limit_cursor()
        self._lines = None
        self.refresh()

    def _limit_cursor(self) -> None:
        """Move a cursor beyond the last stop to it, or remove it if there are no stops."""
        if self.cursor is not None:
            stops = self.count_stops()
            self.cursor = min(self.cursor, stops - 1) if stops else None

    def move_to(self, stop: int) -> None:
        """Move the cursor to a stop, or to the nearest one that exists."""
        if self.count_stops():
            self.cursor = max(0, min(stop, self.count_stops() - 1))
            self.redraw()
            self.handle_cursor_move()

    def action_step(self, direction: int) -> None:
        """Move the cursor by one stride, at first to the first or the last stop."""
        if self.cursor is None:
            self.move_to(0 if direction > 0 else self.count_stops() - 1)
        else:
            self.move_to(self.cursor + direction * self.stride())

    def action_edge(self, stop: int) -> None:
        """Move the cursor to the first or the last stop."""
        self.move_to(stop % max(1, self.count_stops()))

    def action_clear_cursor(self) -> None:
        """Remove the cursor, so that the last line describes all numbers again."""
        self.cursor = None
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave escape to the page if there is no cursor to remove."""
        return action != "clear_cursor" or (self.CAN_CLEAR_CURSOR and self.cursor is not None)

    def on_click(self, event: Click) -> None:
        """Move the cursor to the pointer."""
        offset = event.get_content_offset(self)
        stop = None if offset is None else self.find_stop(offset)
        if stop is not None:
            self.move_to(stop)

    def notify_style_update(self) -> None:
        """Discard the lines that were drawn in the previous colours."""
        super().notify_style_update()
        self._style.clear()
        self._lines = None

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the preferred width: the whole container."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the preferred height."""
        return self.HEIGHT

    def render_line(self, y: int) -> Strip:
        """Return a line; the first request for a size draws all lines."""
        size = self.size
        if self._lines is None or self._lines_size != size:
            self._limit_cursor()  # a narrower chart may have fewer stops
            lines = self.draw(size.width, size.height) if size.width and size.height else []
            self._lines = [self._build_strip(line, size.width) for line in lines]
            self._lines_size = size
        if y < len(self._lines):
            return self._lines[y]
        return Strip.blank(size.width, self._style())

    def _build_strip(self, pieces: Sequence[Piece], width: int) -> Strip:
        segments = merge_segments(
            (replace_controls(text), self._style(style)) for text, style in pieces
        )
        return Strip(segments).adjust_cell_length(width, self._style())

    def render_title(self, title: str, width: int) -> list[Piece]:
        """Return the line of the title, which is underlined if the chart has the focus."""
        return [(fit(title, width).rstrip(), "title")]
