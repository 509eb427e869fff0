"""The views at the right of the page, and the bar of their names."""

from __future__ import annotations

from enum import StrEnum

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static


class View(StrEnum):
    """The views, in the order in which a key steps through them."""

    CASES = "cases"
    COMPARE = "compare"
    TIMES = "times"
    RUNS = "over runs"
    PARAMETER = "over parameter"

    def next_view(self) -> View:
        """Return the next view, after the last one the first."""
        views = list(View)
        return views[(views.index(self) + 1) % len(views)]


class ViewTab(Static):
    """The name of a view, which a click shows. At first, the first view is current."""

    class Clicked(Message):
        """The user clicked on the name of a view."""

        def __init__(self, view: View) -> None:
            super().__init__()
            self.view = view

    def __init__(self, view: View) -> None:
        first = view is View.CASES
        super().__init__(f" {view} ", markup=False, classes="current" if first else "")
        self.view = view

    def on_click(self, event: events.Click) -> None:
        """Request the view."""
        event.stop()
        self.post_message(self.Clicked(self.view))


class ViewBar(Horizontal):
    """The names of the views, the current one underlined."""

    DEFAULT_CSS = """
    ViewBar { height: 1; }
    ViewBar ViewTab { width: auto; margin-right: 1; color: $text-muted; }
    ViewBar ViewTab:hover { background: $boost; }
    ViewBar ViewTab.current { color: $text-primary; text-style: bold underline; }
    """

    def compose(self) -> ComposeResult:
        yield from map(ViewTab, View)

    def show(self, view: View) -> None:
        """Highlight the current view."""
        for tab in self.query(ViewTab):
            tab.set_class(tab.view is view, "current")
