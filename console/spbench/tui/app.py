"""The application: its pages, the run that is watched, and what it remembers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.events import Event, Key, Paste
from textual.screen import Screen
from textual.widgets import Footer

from spbench.errors import SpbenchError, UsageError
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice
from spbench.tui.pages import PAGES, PageEntry
from spbench.tui.settings import keep_theme, load_settings, settings_path, unknown_actions
from spbench.tui.tab_bar import TabBar
from spbench.tui.themes import THEMES

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder
    from spbench.tui.feed import Feed, Source
    from spbench.tui.page import Page

PATIENCE = 0.5
"""Seconds after which a key goes on although the one before is not known to be handled."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the console shows when it opens.

    Attributes:
        home: The folder of the runs.
        environ: The environment that runs are started in.
        folder: Where suites and hostfiles are looked for, and runs are started; absolute.
        suite: A suite to open.
        page: The page to show first.
        recorded: A recorded run to play again, and how fast; None: as fast as it can be read.
    """

    home: Path
    environ: Mapping[str, str]
    folder: Path = field(default_factory=Path.cwd)
    suite: Path | None = None
    page: str = "suites"
    hosts: LaunchChoice = NOTHING_CHOSEN
    recorded: RunFolder | None = None
    speed: float | None = 1.0
    readonly: bool = False


class ConsoleApp(App[int]):
    """The console.

    Attributes:
        feed: The run that is watched, None before there is one.
        starting: Whether a run is being started that has no folder yet.
        hosts: The hosts that runs started here use.
        pages: The pages that were shown so far, by name.
    """

    TITLE = "spbench"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                str(digit),
                f"show_page('{entry.name}')",
                entry.title,
                show=False,
                id=f"app.{entry.name}",
                tooltip=f"Show the page {entry.title}",
            )
            for digit, entry in enumerate(PAGES, 1)
        ),
        Binding("q,ctrl+q", "leave", "Quit", id="app.quit", tooltip="Quit the console"),
        Binding(
            "f1,question_mark", "help", "Help", id="app.help", tooltip="Help of what has focus"
        ),
        Binding(
            "ctrl+p", "command_palette", "Palette", id="app.palette", tooltip="Find any action"
        ),
    ]

    def __init__(self, opening: Opening) -> None:
        super().__init__()
        self.opening = opening
        self.hosts = opening.hosts
        self.feed: Feed | None = None
        self.starting = False
        self.pages: dict[str, Page] = {}
        self._following: asyncio.Task[None] | None = None
        self._typed: deque[Event] = deque()
        self._held_until = 0.0
        for theme in THEMES:
            self.register_theme(theme)
        self._settings_path = settings_path(opening.environ)
        loaded = load_settings(self._settings_path, self.available_themes.keys())
        self.settings, self._complaints = loaded.settings, loaded.complaints

    @property
    def readonly(self) -> bool:
        """Whether nothing may be started, cancelled or written."""
        return self.opening.readonly

    def page_titles(self) -> list[tuple[str, str]]:
        """Return name and title of each page, in order."""
        return [(entry.name, entry.title) for entry in PAGES]

    def compose(self) -> ComposeResult:
        """Return the frame that is shown while the first page is loaded."""
        yield TabBar(self.page_titles(), self.opening.page)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show the first page, and offer what is still going on."""
        self.theme = self.settings.theme
        self.set_keymap(self.settings.keys)
        for entry in PAGES:
            self.add_mode(entry.name, partial(self._make_page, entry))
        self.call_after_refresh(self._open)

    def _make_page(self, entry: PageEntry) -> Page:
        page = self.pages[entry.name] = entry.load()()
        return page

    async def _open(self) -> None:
        """Load and show the first page; the frame around it is on the terminal by now."""
        from spbench.tui.opening import offer_to_attach, open_recorded
        from spbench.tui.palette import action_ids

        if self.current_mode == "_default":  # no key was quicker
            await self.switch_mode(self.opening.page)
        if self.opening.recorded is not None:
            open_recorded(self, self.opening.recorded, self.opening.speed)
        else:
            offer_to_attach(self)
        if self.settings.keys:
            known = await asyncio.to_thread(action_ids)  # it loads all pages
            self._complaints += unknown_actions(self._settings_path, self.settings, known)
        for complaint in self._complaints:
            self.notify(complaint, severity="error", timeout=10, markup=False)

    # The watched run

    def watch_run(self, folder: RunFolder, source: Source | None = None, show: bool = True) -> None:
        """Follow a run from its folder, or from another source of its events; show its page too."""
        from spbench.tui.feed import Feed, LiveSource

        if self._following is not None:
            self._following.cancel()
        self.feed = Feed(folder, source or LiveSource(folder))
        self._following = asyncio.create_task(self.feed.follow())
        if show:
            self.show_page("run")

    def run_goes_on(self) -> bool:
        """Whether the watched run is one that still runs."""
        from spbench.tui.feed import LiveSource

        feed = self.feed
        return feed is not None and not feed.ended and isinstance(feed.source, LiveSource)

    def start_run(self, words: Sequence[str], folder: Path | None = None) -> None:
        """Start a run in a session of its own and watch it; another has to wait for that.

        Args:
            words: What follows ``spbench run``.
            folder: Where it starts; None: where the console did.
        """
        from spbench.tui.opening import launch

        if self.starting:
            self.notify("not started: another run is just being started", severity="warning")
            return
        self.starting = True
        self.show_page("run")
        self.run_worker(launch(self, tuple(words), folder or self.opening.folder), group="launch")

    # Keys

    async def on_event(self, event: Event) -> None:
        """Hold a key back until the one before was handled: it may have moved the focus."""
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if time.monotonic() >= self._held_until:
            await self._give_typed()

    async def _give_typed(self) -> None:
        """Give keys to what has the focus, up to the first that has to be waited for."""
        self._held_until = 0.0
        while self._typed and not self._held_until:
            event, target = self._typed.popleft(), self.focused or self.screen
            await super().on_event(event)
            if event.is_forwarded:
                self._held_until = time.monotonic() + PATIENCE
                nodes = target.ancestors_with_self
                # A second time for the messages that were sent because of the key.
                await self._give_behind(iter([*nodes, *nodes]))

    async def _give_behind(self, nodes: Iterator[DOMNode]) -> None:
        """Give the next key when one that bubbles through the queues of these nodes is through."""
        for node in nodes:
            if node.call_later(self._give_behind, nodes):
                return
        await self._give_typed()

    # Actions

    def show_page(self, name: str) -> None:
        """Show a page."""
        if self.current_mode != name:
            self.switch_mode(name)

    def action_show_page(self, name: str) -> None:
        """Show a page."""
        self.show_page(name)

    def action_help(self) -> None:
        """Say what the focused widget is for, and its keys."""
        from spbench.tui.help import HelpScreen, help_of, keys_of

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(help_of(self.screen), keys_of(self.screen)))

    def action_leave(self) -> None:
        """Quit; a run that still goes on is asked about."""
        from spbench.tui.leaving import leave

        leave(self)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return every action there is for the palette, each under its area."""
        from spbench.tui.palette import commands

        return commands(self, screen)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave pages alone while a question is open."""
        if action == "show_page" and self.screen.is_modal:
            return False
        return super().check_action(action, parameters)

    # What is remembered

    def choose_theme(self, name: str) -> None:
        """Use a theme, and the next time too, unless nothing may be written."""
        self.theme = name
        if self.readonly or name == self.settings.theme:
            return
        try:
            if self._complaints:
                raise UsageError(f"mend {self._settings_path} first; it was left as it is")
            keep_theme(self._settings_path, name)
        except SpbenchError as error:
            why = str(error)
            self.notify(why, title="theme not remembered", severity="warning", markup=False)
        else:
            self.settings = replace(self.settings, theme=name)
