"""What all pages have: tabs above, keys below, help, and the rule of --readonly."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.worker import WorkerError

from spbench.tui.tab_bar import Tab, TabBar, run_status

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp


class Page(Screen[None]):
    """A page of the console.

    A page composes its body in `compose_body` and brings it up to date in `refresh_page`, which is
    called at most ``refresh_hz`` times a second, and only while the page is shown.

    Attributes:
        NAME: Its name in the palette, in keys' ids and for ``show_page``.
        HELP: What F1 says where the focused widget has nothing of its own to say.
        CHANGES: Actions that change something outside the console; --readonly refuses them.
    """

    NAME: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    CHANGES: ClassVar[frozenset[str]] = frozenset()

    @property
    def console_app(self) -> ConsoleApp:
        """The application, by its own type."""
        from spbench.tui.app import ConsoleApp

        assert isinstance(self.app, ConsoleApp)
        return self.app

    def compose(self) -> ComposeResult:
        """Return tabs, body and keys."""
        yield TabBar(self.console_app.page_titles(), self.NAME)
        yield from self.compose_body()
        yield Footer(show_command_palette=False)

    def compose_body(self) -> ComposeResult:
        """Return what the page itself shows."""
        yield from ()

    def on_mount(self) -> None:
        """Begin to draw."""
        self.set_interval(1 / self.console_app.settings.refresh_hz, self._tick)

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
        self.console_app.show_page(event.page)

    def _tick(self) -> None:
        if not (self.is_current and self.is_mounted and self.app.is_running):
            return
        self.query_one(TabBar).show(self._status())
        self.refresh_page()

    def _status(self) -> str:
        app = self.console_app
        run = "… starting a run" if app.starting else run_status(app.feed)
        parts = [run, app.hosts.title, "readonly" if app.readonly else ""]
        return "  ".join(part for part in parts if part)

    def refresh_page(self) -> None:
        """Bring what is shown up to date; cheap where nothing has changed."""

    def unsaved(self) -> str | None:
        """Return what would be lost by quitting, as the begin of a sentence; None: nothing."""
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse what changes something, where the console was opened with --readonly."""
        return not (self.console_app.readonly and action in self.CHANGES)
