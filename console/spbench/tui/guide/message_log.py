"""The log of messages, so that one can be read after it has left the screen."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.events import Event, Key
from textual.notifications import Notification, Notify, SeverityLevel
from textual.screen import Screen
from textual.widgets import Button
from textual.widgets._toast import ToastRack

MAX_MESSAGES = 200
"""The number of messages that are kept, the newest ones."""
MAX_TOASTS = 3
"""The number of messages that are visible at once, so that they leave most of the page free."""

MAX_DIALOG_SECONDS = 3.0
"""The longest time that a message covers a part of a dialog."""
MIN_SHOWN_SECONDS = 1.0
"""The time that a message is shown although keys are pressed."""
_FLEETING: frozenset[SeverityLevel] = frozenset({"information", "warning"})
"""The severities of messages that a key hides; errors stay."""
_MAX_TOAST_WIDTH = 60
_TOAST_FRAME_WIDTH = 3


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


def _is_new(toast: Notification) -> bool:
    return time.time() - toast.raised_at < MIN_SHOWN_SECONDS


def _count_lines(toast: Notification, screen_width: int) -> int:
    """Return the lines of a message with its title and the blank line above it."""
    width = min(_MAX_TOAST_WIDTH, screen_width // 2) - _TOAST_FRAME_WIDTH
    return 1 + bool(toast.title) + math.ceil(len(toast.message) / max(1, width))


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

    async def on_event(self, event: Event) -> None:
        """Hide messages at the next key, so that they do not cover its effect."""
        if isinstance(event, Key) and not event.is_forwarded:
            self._hide(
                [t for t in self._notifications if t.severity in _FLEETING and not _is_new(t)]
            )
        await super().on_event(event)

    def push_screen(self, screen: Any, *args: Any, **options: Any) -> Any:
        """Hide messages, except new errors, before a dialog opens."""
        self._hide([t for t in self._notifications if t.severity in _FLEETING or not _is_new(t)])
        return super().push_screen(screen, *args, **options)

    def _hide(self, toasts: list[Notification]) -> None:
        for toast in toasts:
            self._unnotify(toast, refresh=False)
        if toasts:
            self._refresh_notifications()

    def on_notify(self, event: Notify) -> None:
        """Hide the messages that a new one replaces, before Textual adds it."""
        new = event.notification
        if self.screen.is_modal:
            new.timeout = min(new.timeout, MAX_DIALOG_SECONDS)
        remaining = [toast for toast in self._notifications if not _is_replaced(toast, new)]
        newest = remaining[-(MAX_TOASTS - 1) :]
        for toast in list(self._notifications):
            if toast not in newest:
                self._unnotify(toast, refresh=False)

    def _refresh_notifications(self) -> None:
        """Show the messages on the topmost screen only; Textual keeps them on those below."""
        super()._refresh_notifications()
        if self._notifications and self.screen.is_modal:
            self.screen.call_after_refresh(self._place_rack, self.screen)
        for screen in self.screen_stack[:-1]:
            for rack in screen.query_children(ToastRack):
                # Messages are added later in the same way, so that removing them comes last.
                self.call_later(self._clear_rack, rack)

    def _place_rack(self, dialog: Screen[Any]) -> None:
        """Show messages below the buttons of a dialog, or above them if they do not fit."""
        buttons = [button.region for button in dialog.query(Button) if button.region]
        num_lines = sum(_count_lines(toast, dialog.size.width) for toast in self._notifications)
        lines_below = dialog.size.height - max((button.bottom for button in buttons), default=0)
        margin = 1
        if buttons and lines_below < num_lines + margin:
            margin = dialog.size.height - min(button.y for button in buttons)
        for rack in dialog.query_children(ToastRack):
            rack.styles.margin = (0, 0, margin, 0)

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
