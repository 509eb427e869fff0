"""The log of messages, so that one can be read after it has left the screen."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from textual.app import App
from textual.notifications import SeverityLevel

MAX_MESSAGES = 200
"""The number of messages that are kept, the newest ones."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message that was shown; ``time`` is in seconds since the epoch."""

    text: str
    title: str
    severity: SeverityLevel
    time: float


class LoggingApp(App[int]):
    """An application that keeps its messages.

    Attributes:
        message_log: The messages that were shown, the oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.message_log: deque[ShownMessage] = deque(maxlen=MAX_MESSAGES)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a message for some seconds, and keep it in the log."""
        self.message_log.append(ShownMessage(message, title, severity, time.time()))
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def action_messages(self) -> None:
        """Show the messages so far."""
        from spbench.tui.guide.message_screen import MessageScreen

        if not isinstance(self.screen, MessageScreen):
            self.push_screen(MessageScreen(self.message_log))
