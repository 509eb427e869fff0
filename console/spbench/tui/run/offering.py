"""Which actions of the page there is something to do for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

from spbench.tui.feed import ReplaySource
from spbench.tui.run import keys

if TYPE_CHECKING:
    from spbench.tui.run.page import RunPage


def offered(page: RunPage, action: str) -> bool:
    """Whether there is a run for an action, and one of the kind that it is for."""
    feed, app = page.opened, page.console_app
    if action == "filter" and isinstance(page.focused, Input):
        return False  # there its key is a letter like others
    if feed is None:
        return action not in keys.NEED_RUN
    if action in keys.REPLAY:
        return isinstance(feed.source, ReplaySource)
    if action == "cancel":
        return app.run_goes_on() and feed.elsewhere is None
    return action != "again" or page.startable
