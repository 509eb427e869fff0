"""The line at the top: the pages by digit, and the status of the watched run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from spbench.tui.cells import format_status

if TYPE_CHECKING:
    from spbench.tui.feed import Feed


class Tab(Static):
    """The digit and the title of a page; a click opens the page."""

    class Clicked(Message):
        """The user clicked on a tab."""

        def __init__(self, page: str) -> None:
            super().__init__()
            self.page = page

    def __init__(self, digit: int, page: str, title: str, current: bool) -> None:
        super().__init__(f" {digit} {title} ", markup=False, classes="current" if current else "")
        self.page = page

    def on_click(self, event: events.Click) -> None:
        """Request the page."""
        event.stop()
        self.post_message(self.Clicked(self.page))


class TabBar(Horizontal):
    """The tabs at the left, and the status of the run at the right."""

    DEFAULT_CSS = """
    TabBar { height: 1; background: $panel; dock: top; }
    TabBar Tab { width: auto; color: $text-muted; }
    TabBar Tab:hover { background: $boost; }
    TabBar Tab.current { background: $primary; color: $background; text-style: bold reverse; }
    TabBar Tab.current:ansi { text-style: reverse; }
    TabBar #status { width: 1fr; content-align-horizontal: right; padding-right: 1; }
    """

    def __init__(self, pages: Sequence[tuple[str, str]], current: str) -> None:
        super().__init__()
        self._pages = pages
        self._current = current
        self._shown = ""

    def compose(self) -> ComposeResult:
        for digit, (page, title) in enumerate(self._pages, 1):
            yield Tab(digit, page, title, page == self._current)
        yield Static("", id="status", markup=False)

    def show(self, text: str) -> None:
        """Show a status at the right; an unchanged text causes no new layout."""
        if text != self._shown:
            self._shown = text
            self.query_one("#status", Static).update(text)


def format_run_status(feed: Feed | None) -> str:
    """Return suite, status and progress of the watched run; empty without a run."""
    if feed is None or feed.state.run is None:
        return ""
    from spbench.record.run_parts import count_cases  # slow, and not needed without a run

    counts = count_cases(feed.state.cases.values())
    run = feed.state.run
    shown_count = counts.passed if feed.ended or run.finished is not None else counts.ran
    return f"{run.suite} {format_status(feed.status)} {shown_count}/{counts.total}"
