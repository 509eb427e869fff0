"""The base of all charts: lines drawn once for a size, a cursor, and its words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click
from textual.geometry import Offset, Size
from textual.strip import Strip
from textual.widget import Widget

from spbench.record.number_formatting import clean
from spbench.tui.widgets.component_styles import ComponentStyles, merge_segments
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.fitting import fit
from spbench.tui.widgets.keys import key

SERIES_COLOURS = 6
"""Series that have a colour of their own; further ones begin again."""
_WORDS = (
    *("title", "axis", "words", "line", "over", "limit", "mark", "cursor", "failed", "none"),
    "filled",
    *(f"step-{step}" for step in range(4)),
    *(f"series-{series}" for series in range(SERIES_COLOURS)),
)


class Chart(Widget, can_focus=True):
    """A drawing of figures with a cursor that moves along them.

    A subclass draws in `draw`, tells how many places the cursor has by `stops`, and calls
    `redraw` when its figures change. The cursor is None until the reader moves it.

    Args:
        id: The widget's id.
        classes: The widget's classes.
        ascii: Whether to draw with ASCII alone.
    """

    HELP: ClassVar[str] = ""
    HEIGHT: ClassVar[int] = 8
    """Lines that it takes where its height is automatic."""
    CAN_CLEAR_CURSOR: ClassVar[bool] = True
    """Whether escape takes the cursor away."""
    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        key("chart.left", "left", "step(-1)", "Left", "To the left"),
        key("chart.right", "right", "step(1)", "Right", "To the right"),
        key("chart.first", "home", "edge(0)", "First", "To the first"),
        key("chart.last", "end", "edge(-1)", "Last", "To the last"),
        key("chart.all", "escape", "let_go", "All", "All in words again"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"chart--{word}" for word in _WORDS}
    DEFAULT_CSS = """
    Chart {
        width: 1fr; height: 1fr; background: $surface; color: $foreground;
        & > .chart--title { text-style: bold; }
        &:focus > .chart--title { text-style: bold underline; }
        & > .chart--axis { color: $text-muted; }
        & > .chart--line { color: $text-primary; }
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
        self._drawn: list[Strip] | None = None
        self._drawn_size = Size()
        self._style = ComponentStyles(self, "chart")

    @abstractmethod
    def draw(self, width: int, height: int) -> Sequence[Sequence[Piece]]:
        """Return the lines from the top as pieces of text with the words of their styles.

        Args:
            width: Cells of the widget, at least 1; longer lines are cut.
            height: Lines of the widget, at least 1; further ones are not shown.
        """

    def count_stops(self) -> int:
        """Return in how many places the cursor can be."""
        return 0

    def stride(self) -> int:
        """Return by how many places a key moves the cursor."""
        return 1

    def find_stop(self, at: Offset) -> int | None:
        """Return the cursor's place at a cell of the widget, if there is one."""
        return None

    def handle_cursor_move(self) -> None:
        """Called when the reader has moved the cursor."""

    def redraw(self) -> None:
        """Draw all again, because the figures or the cursor have changed."""
        if self.cursor is not None:
            self.cursor = min(self.cursor, self.count_stops() - 1) if self.count_stops() else None
        self._drawn = None
        self.refresh()

    def move_to(self, stop: int) -> None:
        """Put the cursor on a place, or on the nearest that there is."""
        if self.count_stops():
            self.cursor = max(0, min(stop, self.count_stops() - 1))
            self.redraw()
            self.handle_cursor_move()

    def action_step(self, way: int) -> None:
        """Move the cursor along; the first key puts it on the first place, or on the last."""
        if self.cursor is None:
            self.move_to(0 if way > 0 else self.count_stops() - 1)
        else:
            self.move_to(self.cursor + way * self.stride())

    def action_edge(self, stop: int) -> None:
        """Move the cursor to the first or the last place."""
        self.move_to(stop % max(1, self.count_stops()))

    def action_let_go(self) -> None:
        """Take the cursor away: the words tell of all figures again."""
        self.cursor = None
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave escape to the page where there is no cursor to take away."""
        return action != "let_go" or (self.CAN_CLEAR_CURSOR and self.cursor is not None)

    def on_click(self, event: Click) -> None:
        """Put the cursor where the pointer is."""
        at = event.get_content_offset(self)
        stop = None if at is None else self.find_stop(at)
        if stop is not None:
            self.move_to(stop)

    def notify_style_update(self) -> None:
        """Forget what was drawn in the colours of before."""
        super().notify_style_update()
        self._style.clear()
        self._drawn = None

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the width it would like: all there is."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the height it would like."""
        return self.HEIGHT

    def render_line(self, y: int) -> Strip:
        """Return a line, drawn with all others when it is first asked for."""
        size = self.size
        if self._drawn is None or self._drawn_size != size:
            lines = self.draw(size.width, size.height) if size.width and size.height else []
            self._drawn = [self._strip(line, size.width) for line in lines]
            self._drawn_size = size
        if y < len(self._drawn):
            return self._drawn[y]
        return Strip.blank(size.width, self._style())

    def _strip(self, pieces: Sequence[Piece], width: int) -> Strip:
        segments = merge_segments((clean(text), self._style(words)) for text, words in pieces)
        return Strip(segments).adjust_cell_length(width, self._style())

    def title_line(self, words: str, width: int) -> list[Piece]:
        """Return a line of the title, which is underlined where the chart has the focus."""
        return [(fit(words, width).rstrip(), "title")]
