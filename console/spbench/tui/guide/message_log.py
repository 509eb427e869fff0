"""The log of messages, so that one can be read after it has left the screen."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from textual.app import App
from textual.notifications import Notification, Notify, SeverityLevel
from textual.widgets._toast import ToastRack

MAX_MESSAGES = 200
"""The number of messages that are kept, the newest ones."""
MAX_TOASTS = 3
"""The number of messages that are visible at once, so that they leave most of the page free."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message that was shown; ``time`` is in seconds since the epoch."""

    text: str
    title: str
    severity: SeverityLevel
    time: float


def _is_replaced(toast: Notification, new: Notification) -> bool:
    """Whether a new message makes an earlier one superfluous.

    Information is about the last key, so that the newest suffices. Different warnings and errors
    are all of interest.
    """
    if toast.severity != new.severity:
        return False
    same_text = (toast.title, toast.message) == (new.title, new.message)
    return same_text or new.severity == "information"


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

    def on_notify(self, event: Notify) -> None:
        """Hide the messages that a new one replaces, before Textual adds it."""
        new = event.notification
        remaining = [toast for toast in self._notifications if not _is_replaced(toast, new)]
        newest = remaining[-(MAX_TOASTS - 1) :]
        for toast in list(self._notifications):
            if toast not in newest:
                self._unnotify(toast, refresh=False)

    def _refresh_notifications(self) -> None:
        """Show the messages on the topmost screen only; Textual keeps them on those below."""
        super()._refresh_notifications()
        for screen in self.screen_stack[:-1]:
            for rack in screen.query_children(ToastRack):
                # Messages are added later in the same way, so that removing them comes last.
                self.call_later(self._clear_rack, rack)

    async def _clear_rack(self, rack: ToastRack) -> None:
        """Remove the messages of a screen unless it is the topmost one."""
        if not rack.is_attached or rack.screen is self.screen:
            return
        await rack.remove_children()
        # Textual lays out only the topmost screen, and draws those below as they were.
        rack.screen._refresh_layout()
        self.screen.refresh()

    def action_messages(self) -> None:
        """Show the messages so far."""
        from spbench.tui.guide.message_screen import MessageScreen

        if not isinstance(self.screen, MessageScreen):
            self.push_screen(MessageScreen(self.message_log))
