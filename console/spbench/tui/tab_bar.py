"""The line at the top: the pages by digit, and the status of the watched run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from spbench.tui.widgets.text import cell_width, fit

if TYPE_CHECKING:
    from spbench.tui.feed import Feed

SEPARATOR = " > "
MIN_WIDTH_FOR_LOCATION = 120
"""Columns of the terminal from which the location is shown."""
MIN_LOCATION_WIDTH = 8
MIN_LAUNCH_WIDTH = 8
"""Cells from which a part of the launch settings is shown next to a live run."""
_TAB_PADDING = 4
"""Cells of a tab in addition to its title."""
_GAPS = 5
"""Cells left of the location, between it and the status, and right of the status."""


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
    TabBar #location { width: 1fr; color: $text-muted; }
    TabBar #status { width: auto; padding-right: 1; }
    """

    def __init__(self, pages: Sequence[tuple[str, str]], current: str) -> None:
        super().__init__()
        self._pages = pages
        self._current = current
        self._shown = ("", "")

    def compose(self) -> ComposeResult:
        for digit, (page, title) in enumerate(self._pages, 1):
            yield Tab(digit, page, title, page == self._current)
        yield Static("", id="location", markup=False)
        yield Static("", id="status", markup=False)

    def show(self, status: str, location: Sequence[str] = ()) -> None:
        """Show a status at the right, and the location if there is space between."""
        shown = (status, self._fit_location(location, cell_width(status)))
        if shown == self._shown:
            return
        # A layout of the whole page takes longer than anything else after a key.
        has_other_width = cell_width(status) != cell_width(self._shown[0])
        self._shown = shown
        self.query_one("#status", Static).update(status, layout=has_other_width)
        self.query_one("#location", Static).update(f"  {shown[1]}", layout=False)

    def _fit_location(self, location: Sequence[str], status_width: int) -> str:
        if self.size.width < MIN_WIDTH_FOR_LOCATION:
            return ""
        tabs_width = find_tabs_width(self._pages)
        return fit_location(location, self.size.width - tabs_width - status_width - _GAPS)


def find_tabs_width(pages: Iterable[tuple[str, str]]) -> int:
    """Return the cells of the tabs of pages, given by name and title."""
    return sum(cell_width(title) + _TAB_PADDING for _, title in pages)


def fit_status(run: str, launch: str, width: int, *, keeps_run: bool) -> str:
    """Return the status of a run and the launch settings in ``width`` cells.

    The status of a live run is kept. That of another run is left out before the settings are cut.
    """
    text = "  ".join(filter(None, (run, launch)))
    if cell_width(text) <= width or not launch:
        return text
    if not keeps_run:
        return launch if cell_width(launch) <= width else fit(launch, max(width, 1)).rstrip()
    remaining = width - cell_width(run) - 2
    return f"{run}  {fit(launch, remaining)}" if remaining >= MIN_LAUNCH_WIDTH else run


def fit_location(location: Sequence[str], width: int) -> str:
    """Return names in ``width`` cells; the first ones are left out if they do not fit.

    Empty for a single name, which is that of the current tab.
    """
    if len(location) < 2:
        return ""
    text = SEPARATOR.join(location)
    remaining = list(location)
    while cell_width(text) > width and len(remaining) > 1:
        remaining.pop(0)
        text = SEPARATOR.join(("…", *remaining))
    if cell_width(text) <= width:
        return text
    if width < MIN_LOCATION_WIDTH:
        return ""
    while cell_width(text) >= width:
        text = text[1:]
    return f"…{text}"


def format_run_status(feed: Feed | None) -> str:
    """Return suite, status and progress of the watched run; empty without a run."""
    if feed is None or feed.state.run is None:
        return ""
    # A slow import, which is not needed without a run.
    from spbench.record.run_parts import count_cases

    counts = count_cases(feed.state.cases.values())
    run = feed.state.run
    shown_count = counts.passed if feed.ended or run.finished is not None else counts.ran
    return f"{run.suite} {feed.status_text} {shown_count}/{counts.total}"
