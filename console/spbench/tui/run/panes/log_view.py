"""The log of all ranks or of one rank: the newest lines that fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.binding import BindingType
from textual.strip import Strip
from textual.widget import Widget

from spbench.record.number_formatting import replace_controls
from spbench.tui.feed import Feed, LogLine
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import ComponentStyles, cell_width, fit, wrap_at_separators
from spbench_core.events.statuses import LogLevel

_STYLE_BY_LEVEL: Mapping[str, str] = {
    LogLevel.ERROR: "failed",
    LogLevel.WARNING: "slow",
    LogLevel.WHERE: "muted",
    LogLevel.LOADING: "muted",
}

_INDENT = "  "
"""Indentation of the further lines of a message, so small that a traceback has space."""
_MIN_TEXT_WIDTH = 8
_TABLE_ROW = re.compile(r"\S {2,}\S.*\S {2,}\S|^[-+=|: ]{3,}$")
"""A line with at least three columns, or a rule between lines of a table."""
_LEFT_MARK = "«"
_RIGHT_MARK = "»"


class LogView(Widget, can_focus=True):
    """The log of a feed from its end upwards; lines out of view are never processed.

    Attributes:
        rank: The rank with the lines that are shown; None for all ranks.
    """

    HELP = """\
The lines of the selected rank, or of all ranks (Escape in the table). Times are UTC.
Up, down, page up and page down scroll; End goes back to the newest lines and stays there.
« and » mark rows of tables with more text: left and right scroll."""
    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("log.up", "up,k", "scroll_lines(1)", "Older", "Older lines"),
        make_binding("log.down", "down,j", "scroll_lines(-1)", "Newer", "Newer lines"),
        make_binding(
            "log.page-up", "pageup", "scroll_pages(1)", "Page up", "A page of older lines"
        ),
        make_binding(
            "log.page-down", "pagedown", "scroll_pages(-1)", "Page down", "A page of newer lines"
        ),
        make_binding("log.left", "left", "sideways(-1)", "Left", "The text to the left"),
        make_binding("log.right", "right", "sideways(1)", "Right", "The text to the right"),
        make_binding("log.end", "end,G", "newest", "Newest", "The newest lines, from now on"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log--{name}" for name in ("muted", "failed", "slow", "rank")
    }
    DEFAULT_CSS = """
    LogView {
        height: 1fr; background: transparent; color: $foreground;
        & > .log--muted { color: $text-muted; }
        & > .log--failed { color: $text-error; text-style: bold; }
        & > .log--slow { color: $text-warning; }
        & > .log--rank { color: $text-primary; }
    }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.rank: int | None = None
        self._feed: Feed | None = None
        self._state: tuple[object, ...] = ()
        self._last_line: int | None = None
        self._left = 0
        self._max_left = 0
        self._strips: list[Strip] = []
        self._style = ComponentStyles(self, "log")

    def show(self, feed: Feed, rank: int | None) -> None:
        """Show the current log lines of a run, of one rank or of all ranks."""
        if (feed, rank) != (self._feed, self.rank):
            self._last_line = None
        self._feed = feed
        self.rank = rank
        state = (id(feed), rank, feed.log_count, self._last_line, self._left, self.size)
        if state != self._state:
            self._state = state
            self._strips = self._draw()
            self.refresh()

    def on_resize(self) -> None:
        """Show the lines that fit the new size."""
        if self._feed is not None:
            self.show(self._feed, self.rank)

    def notify_style_update(self) -> None:
        """Discard the lines that were drawn in the previous colours."""
        super().notify_style_update()
        self._style.clear()
        self._state = ()

    def render_line(self, y: int) -> Strip:
        """Return a line; the newest is at the bottom if the lines fill the view."""
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self._style())

    def _draw(self) -> list[Strip]:
        width, height = self.size
        self._max_left = 0
        strips: list[Strip] = []
        for _, line in self._read_upwards():
            strips[:0] = self._render_log_line(line, width)
            if len(strips) >= height:
                break
        if not strips and self._feed is not None:
            text = f"rank {self.rank} has printed nothing"
            if self.rank is None:
                text = "no rank has printed anything"
            text += "; Enter on a case that did not pass shows the job's stdout and stderr"
            return [Strip([Segment(fit(text, width), self._style("muted"))], width)]
        return strips[-height:] if height else []

    def _read_upwards(self) -> Iterator[tuple[int, LogLine]]:
        """Yield numbers and lines of the rank, from the last one that is shown."""
        assert self._feed is not None
        number = self._feed.log_count
        for line in reversed(self._feed.logs):
            number -= 1
            if self._last_line is not None and number > self._last_line:
                continue
            if self.rank is None or line.rank == self.rank:
                yield number, line

    def _render_log_line(self, line: LogLine, width: int) -> list[Strip]:
        """Return a log line; the rest of its message is below it, indented a little."""
        clock = datetime.fromtimestamp(line.time, UTC).strftime("%H:%M:%S")
        prefix = f"{clock} rank {line.rank:<4} "
        texts = [text.expandtabs() for text in line.message.splitlines()] or [""]
        is_table = any(_TABLE_ROW.search(text) for text in texts)
        # The rows of a table begin below each other, also next to the clock.
        indent = " " * len(prefix) if is_table else _INDENT
        first_width = max(_MIN_TEXT_WIDTH, width - len(prefix))
        other_width = max(_MIN_TEXT_WIDTH, width - len(indent))
        lines: list[str] = []
        for text in texts:
            if _TABLE_ROW.search(text):
                lines.append(self._shorten_row(text, other_width))
            else:
                lines += wrap_at_separators(
                    text, other_width if lines else first_width, other_width
                )
        style = self._style(_STYLE_BY_LEVEL.get(line.level, ""))
        starts = [Segment(prefix, self._style("rank")), *[Segment(indent, style)] * len(lines)]
        return [
            Strip([start, Segment(text, style)]).adjust_cell_length(width, self._style())
            for start, text in zip(starts, lines, strict=False)
        ]

    def _shorten_row(self, text: str, width: int) -> str:
        """Return the visible part of a row of a table, with marks at cut ends."""
        text = replace_controls(text)
        self._max_left = max(self._max_left, cell_width(text) - width)
        left = min(self._left, max(0, cell_width(text) - width))
        if left:
            text = _LEFT_MARK + text[left + 1 :]
        return text if cell_width(text) <= width else set_cell_size(text, width - 1) + _RIGHT_MARK

    def action_sideways(self, steps: int) -> None:
        """Scroll the rows of tables by half a page to the right, or to the left."""
        step = max(1, self.size.width // 2)
        self._left = max(0, min(self._left + steps * step, self._max_left))
        if self._feed is not None:
            self.show(self._feed, self.rank)

    def action_scroll_lines(self, up: int) -> None:
        """Show older lines, or newer ones if ``up`` is negative."""
        if self._feed is None:
            return
        if up > 0:
            numbers = [number for number, _ in islice(self._read_upwards(), up + 1)]
            self._last_line = numbers[-1] if numbers else self._last_line
        else:
            self._scroll_down(-up)
        self.show(self._feed, self.rank)

    def _scroll_down(self, lines: int) -> None:
        if self._last_line is None or self._feed is None:
            return
        previous_last_line = self._last_line
        self._last_line = None
        newer_numbers = [
            number for number, _ in self._read_upwards() if number > previous_last_line
        ]
        if len(newer_numbers) > lines:
            self._last_line = newer_numbers[-lines]

    def action_scroll_pages(self, up: int) -> None:
        """Show older or newer lines, as many as are in view."""
        self.action_scroll_lines(up * max(1, self.size.height - 1))

    def action_newest(self) -> None:
        """Show the newest lines from now on."""
        self._last_line = None
        if self._feed is not None:
            self.show(self._feed, self.rank)
