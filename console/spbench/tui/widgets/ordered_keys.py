"""An application that handles keys one after the other, also if they come at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from textual.app import App
from textual.dom import DOMNode
from textual.events import AppBlur, Event, Key, Paste

_WAIT_STEP = 0.005
"""Time of one step of waiting until a key was handled, in seconds."""


class OrderedKeysApp(App[int]):
    """An application that holds a key back until the previous one was handled.

    Attributes:
        max_key_wait_steps: Steps after which the next key is dispatched although the one before may
            not be handled. Steps are counted, not seconds, since each takes longer on a busy
            machine.
    """

    max_key_wait_steps = 100

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pending_keys: deque[Event] = deque()
        self._awaited_nodes: Iterator[DOMNode] | None = None

    async def on_event(self, event: Event) -> None:
        """Hold a key back until the previous one was handled, as that may move the focus."""
        if isinstance(event, AppBlur):
            return  # keep the focus while another window is active
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._pending_keys.append(event)
        if self._awaited_nodes is None:
            await self.dispatch_keys()

    async def dispatch_keys(self) -> None:
        """Send pending keys to the focused widget, up to the first that has to be awaited."""
        self._awaited_nodes = None
        while self._pending_keys and self._awaited_nodes is None and self.is_running:
            event = self._pending_keys.popleft()
            target = self.focused or self.screen
            await super().on_event(event)
            if event.is_forwarded:
                nodes = target.ancestors_with_self
                # Twice, since the key may have sent messages that pass through the same queues.
                self._awaited_nodes = awaited = iter([*nodes, *nodes])
                self._limit_wait(awaited, self.max_key_wait_steps)
                await self._pass_through(awaited)

    async def _pass_through(self, nodes: Iterator[DOMNode]) -> None:
        """Dispatch the next keys when the message queues of all nodes are worked off."""
        for node in nodes:
            if node.call_later(self._pass_through, nodes):
                return
        await self._stop_waiting(nodes)

    async def _stop_waiting(self, nodes: Iterator[DOMNode]) -> None:
        """Dispatch the next keys if these nodes are still awaited."""
        if self._awaited_nodes is nodes:
            await self.dispatch_keys()

    def _limit_wait(self, nodes: Iterator[DOMNode], steps: int) -> None:
        """Wait for these nodes at most this number of steps."""
        if steps and self._awaited_nodes is nodes:
            asyncio.get_running_loop().call_later(_WAIT_STEP, self._limit_wait, nodes, steps - 1)
        elif self._awaited_nodes is nodes:
            self.call_later(self._stop_waiting, nodes)
