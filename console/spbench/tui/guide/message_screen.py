"""The messages that the console has shown, the newest first."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.tui.dialogs import Modal
from spbench.tui.guide.message_log import ShownMessage

NO_MESSAGES = "There are no messages yet."
_SIGN_BY_SEVERITY = {"error": "✗", "warning": "▲", "information": "·"}
_STYLE_BY_SEVERITY = {
    "error": "bold $text-error",
    "warning": "bold $text-warning",
    "information": "bold",
}


class MessageScreen(Modal[None]):
    """Messages with their times, in front of the page."""

    HELP: ClassVar[str] = "The messages of this console, the newest first. The arrow keys scroll."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f9,q", "app.pop_screen", "Close", id="messages.close"),
    ]
    DEFAULT_CSS = """
    MessageScreen Static { height: auto; }
    """

    def __init__(self, messages: Iterable[ShownMessage]) -> None:
        super().__init__()
        self._messages = tuple(messages)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as frame:
            frame.border_title = "Messages"
            frame.border_subtitle = "Esc closes"
            if not self._messages:
                yield Static(NO_MESSAGES)
            for message in reversed(self._messages):
                yield Static(render_message(message))


def render_message(message: ShownMessage) -> Content:
    """Return a message with its time and the sign of its severity."""
    clock = time.strftime("%H:%M:%S", time.localtime(message.time))
    sign = f"{_SIGN_BY_SEVERITY[message.severity]} "
    heading = f"{sign}{message.title}: " if message.title else sign
    style = _STYLE_BY_SEVERITY[message.severity]
    return Content.assemble((f"{clock} ", "$text-muted"), (heading, style), message.text)
