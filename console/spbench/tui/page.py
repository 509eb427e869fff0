"""The base of all pages: tabs above, keys below, help, and the rule of --readonly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer
from textual.worker import WorkerError

from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import Confirm
from spbench.tui.tab_bar import Tab, TabBar, format_run_status

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder

_SOON = 0.01
"""Seconds between two looks whether a page is whole."""


class Page(Screen[None]):
    """A page of the console.

    A page composes its body in `compose_body` and brings it up to date in `refresh_page`, which is
    called at most ``refresh_hz`` times a second, and only while the page is shown.

    Args:
        context: The state that the pages share.

    Attributes:
        NAME: Its name in the palette, in keys' ids and for ``show_page``.
        HELP: What F1 says where the focused widget has nothing of its own to say.
        CHANGES: Actions that change something outside the console; --readonly refuses them.
    """

    NAME: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    MODIFYING_ACTIONS: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, context: ConsoleContext) -> None:
        self.context = context
        super().__init__()

    def compose(self) -> ComposeResult:
        """Return tabs, body and keys."""
        yield TabBar(self.context.titles, self.NAME)
        yield from self.compose_body()
        yield Footer(show_command_palette=False)

    def compose_body(self) -> ComposeResult:
        """Return what the page itself shows."""
        yield from ()

    def on_mount(self) -> None:
        """Begin to draw."""
        self.set_interval(1 / self.context.refresh_hz, self._tick)

    async def on_unmount(self) -> None:
        """Wait for the end of what the page does: a second cancel would leave processes behind."""
        self.cancel_work()
        for worker in [worker for worker in self.workers if worker.node is self]:
            with suppress(WorkerError):
                await worker.wait()

    def cancel_work(self, group: str | None = None) -> None:
        """Cancel what the page does, all of it or one group; what is cancelled already ends."""
        for worker in self.workers:
            ours = worker.node is self and group in (None, worker.group)
            if ours and not worker.is_cancelled:
                worker.cancel()

    def on_screen_resume(self) -> None:
        """Bring the page up to date at once when it is shown again."""
        self.call_after_refresh(self._tick)

    def on_tab_clicked(self, event: Tab.Clicked) -> None:
        """Open the page of the tab."""
        self.context.show_page(event.page)

    def _tick(self) -> None:
        if not (self.is_current and self.is_mounted and self.app.is_running):
            return
        self.query_one(TabBar).show(self._status())
        self.refresh_page()

    def _status(self) -> str:
        context = self.context
        run = (
            "… starting a run"
            if context.starting_since is not None
            else format_run_status(context.feed)
        )
        parts = [run, context.launch_title, "readonly" if context.readonly else ""]
        return "  ".join(part for part in parts if part)

    def start_action(self, action: Callable[..., Awaitable[object]], *given: object) -> None:
        """Begin an action that may ask the user something and wait for files."""
        self.run_worker(partial(action, *given), group="action")

    def show_error(self, sentence: str, timeout: float = 8) -> None:
        """Say what is wrong, for some seconds."""
        self.app.notify(sentence, severity="error", timeout=timeout, markup=False)

    async def confirm(self, question: str, yes: str, no: str) -> bool:
        """Ask a question, and return whether it was answered with yes."""
        return await self.app.push_screen_wait(Confirm(question, yes, no))

    async def rerun_failed_cases(self, folder: RunFolder) -> None:
        """Ask whether to start a run of what failed in another, and do."""
        if await self.confirm(f"Run again what failed in {folder.id}?", "Run", "Cancel"):
            self.context.start_failed_cases(folder)

    async def confirm_overwrite(self, path: Path) -> bool:
        """Ask whether a file may be replaced, where there is one of that name."""
        if not await asyncio.to_thread(path.exists):
            return True
        return await self.confirm(f"{path} is there. Replace it?", "Replace", "Keep")

    async def wait_until_mounted(self) -> None:
        """Wait until all that the page composes is there: on a busy machine that comes late."""
        while not all(node.is_mounted for node in self.walk_children(Widget)):
            await asyncio.sleep(_SOON)

    def refresh_page(self) -> None:
        """Bring what is shown up to date; cheap where nothing has changed."""

    def describe_unsaved(self) -> str | None:
        """Return what would be lost by quitting, as the begin of a sentence; None: nothing."""
        return None

    def discard_unsaved(self) -> None:
        """Forget what is not saved: the user was asked, and quits."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse what changes something, where the console was opened with --readonly."""
        return not (self.context.readonly and action in self.MODIFYING_ACTIONS)
