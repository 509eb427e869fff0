"""The log of the ranks: the newest lines that fit, of one rank or of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import ClassVar

from rich.segment import Segment
from textual.binding import BindingType
from textual.strip import Strip
from textual.widget import Widget

from spbench.tui.feed import Feed, LogLine
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.text import ComponentStyles, fit, wrap
from spbench_core.events.statuses import LogLevel

_LEVELS: Mapping[str, str] = {
    LogLevel.ERROR: "failed",
    LogLevel.WARNING: "slow",
    LogLevel.WHERE: "muted",
    LogLevel.LOADING: "muted",
}


class LogView(Widget, can_focus=True):
    """The feed's log from its end upwards; lines that are not in view are never looked at.

    Attributes:
        rank: The rank whose lines are shown; None for all.
    """

    HELP = """\
What the ranks have said: those of the chosen rank, or of all (Escape in the table).
Up, down, page up and page down scroll; End goes back to the newest lines and stays there."""
    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        key("log.up", "up,k", "scroll_lines(1)", "Older", "Older lines"),
        key("log.down", "down,j", "scroll_lines(-1)", "Newer", "Newer lines"),
        key("log.page-up", "pageup", "scroll_pages(1)", "Page up", "A page of older lines"),
        key("log.page-down", "pagedown", "scroll_pages(-1)", "Page down", "A page of newer lines"),
        key("log.end", "end,G", "newest", "Newest", "The newest lines, from now on"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log--{word}" for word in ("muted", "failed", "slow", "rank")
    }
    DEFAULT_CSS = """
    LogView {
        height: 1fr; background: $surface; color: $foreground;
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
        self._seen: tuple[object, ...] = ()
        self._last: int | None = None
        self._strips: list[Strip] = []
        self._style = ComponentStyles(self, "log")

    def show(self, feed: Feed, rank: int | None) -> None:
        """Show what the ranks of a run have said by now, of one rank or of all."""
        if (feed, rank) != (self._feed, self.rank):
            self._last = None
        self._feed = feed
        self.rank = rank
        seen = (id(feed), rank, feed.log_count, self._last, self.size)
        if seen != self._seen:
            self._seen = seen
            self._strips = self._draw()
            self.refresh()

    def on_resize(self) -> None:
        """Show as many lines as there is room for now."""
        if self._feed is not None:
            self.show(self._feed, self.rank)

    def notify_style_update(self) -> None:
        """Forget what was drawn in the colours of before."""
        super().notify_style_update()
        self._style.clear()
        self._seen = ()

    def render_line(self, y: int) -> Strip:
        """Return a line; the newest stands at the bottom once there are enough."""
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self._style())

    def _draw(self) -> list[Strip]:
        width, room = self.size
        strips: list[Strip] = []
        for _, line in self._upwards():
            strips[:0] = self._lines(line, width)
            if len(strips) >= room:
                break
        if not strips and self._feed is not None:
            who = "no rank" if self.rank is None else f"rank {self.rank}"
            words = (
                f"{who} has printed anything" if self.rank is None else f"{who} has printed nothing"
            )
            words += "; Enter on a case that did not pass shows the job's stdout and stderr"
            return [Strip([Segment(fit(words, width), self._style("muted"))], width)]
        return strips[-room:] if room else []

    def _upwards(self) -> Iterator[tuple[int, LogLine]]:
        """The lines of the rank with their numbers, from the last that is shown."""
        assert self._feed is not None
        number = self._feed.log_count
        for line in reversed(self._feed.logs):
            number -= 1
            if self._last is not None and number > self._last:
                continue
            if self.rank is None or line.rank == self.rank:
                yield number, line

    def _lines(self, line: LogLine, width: int) -> list[Strip]:
        """A log line in as many lines as it needs."""
        clock = datetime.fromtimestamp(line.time).strftime("%H:%M:%S")
        head = f"{clock} rank {line.rank:<4} "
        room = max(8, width - len(head))
        pieces = [piece for text in line.message.splitlines() or [""] for piece in wrap(text, room)]
        style = self._style(_LEVELS.get(line.level, ""))
        first = [Segment(head, self._style("rank")), Segment(fit(pieces[0], room), style)]
        more = [
            [Segment(" " * len(head), style), Segment(fit(piece, room), style)]
            for piece in pieces[1:]
        ]
        return [Strip(segments).adjust_cell_length(width) for segments in (first, *more)]

    # Scrolling

    def action_scroll_lines(self, up: int) -> None:
        """Show older lines, or newer ones where ``up`` is negative."""
        if self._feed is None:
            return
        if up > 0:
            numbers = [number for number, _ in islice(self._upwards(), up + 1)]
            self._last = numbers[-1] if numbers else self._last
        else:
            self._newer(-up)
        self.show(self._feed, self.rank)

    def _newer(self, lines: int) -> None:
        if self._last is None or self._feed is None:
            return
        before, self._last = self._last, None
        newer = [number for number, _ in self._upwards() if number > before]
        if len(newer) > lines:
            self._last = newer[-lines]

    def action_scroll_pages(self, up: int) -> None:
        """Show older or newer lines, as many as are in view."""
        self.action_scroll_lines(up * max(1, self.size.height - 1))

    def action_newest(self) -> None:
        """Go on with the newest lines."""
        self._last = None
        if self._feed is not None:
            self.show(self._feed, self.rank)
