"""The application: its pages, the run that is watched, and what it remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from spbench.errors import SpbenchError
from spbench.tui.pages import PAGES, PageEntry
from spbench.tui.settings import Settings, load_settings, save_settings, settings_path
from spbench.tui.tab_bar import TabBar
from spbench.tui.themes import DEFAULT, THEMES

if TYPE_CHECKING:
    from spbench.record.folder import RunFolder
    from spbench.tui.feed import Feed, Source
    from spbench.tui.page import Page


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The hosts that runs started here use; with none set the suite says, or it is this machine."""

    hostfile: Path | None = None
    hosts: str | None = None
    exclude_hosts: str | None = None
    launcher: str | None = None

    def words(self) -> str:
        """Return the choice in a few words."""
        if self.hostfile is not None:
            return f"hosts: {self.hostfile.name}"
        return f"hosts: {self.hosts}" if self.hosts else ""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the console shows when it opens.

    Attributes:
        home: The folder of the runs.
        environ: The environment that runs are started in.
        folder: Where suites and hostfiles are looked for.
        suite: A suite to open.
        page: The page to show first.
        recorded: A recorded run to play again, and how fast; None: as fast as it can be read.
    """

    home: Path
    environ: Mapping[str, str]
    folder: Path = field(default_factory=Path)
    suite: Path | None = None
    page: str = "suites"
    hosts: HostChoice = HostChoice()
    recorded: RunFolder | None = None
    speed: float | None = 1.0
    readonly: bool = False


class ConsoleApp(App[int]):
    """The console.

    Attributes:
        feed: The run that is watched, None before there is one.
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
        self.pages: dict[str, Page] = {}
        self._following: asyncio.Task[None] | None = None
        self._settings_path = settings_path(opening.environ)
        self._complaint: str | None = None
        self.settings = self._read_settings()
        for theme in THEMES:
            self.register_theme(theme)

    def _read_settings(self) -> Settings:
        try:
            return load_settings(self._settings_path)
        except SpbenchError as error:
            self._complaint = str(error)
            return Settings()

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
        known = self.settings.theme in self.available_themes
        self.theme = self.settings.theme if known else DEFAULT
        self.theme_changed_signal.subscribe(self, self._remember_theme)
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

        if self.current_mode == "_default":  # no key was quicker
            await self.switch_mode(self.opening.page)
        if self._complaint:
            self.notify(self._complaint, severity="error", timeout=10, markup=False)
        if self.opening.recorded is not None:
            open_recorded(self, self.opening.recorded, self.opening.speed)
        else:
            offer_to_attach(self)

    # The watched run

    def watch_run(self, folder: RunFolder, source: Source | None = None) -> None:
        """Follow a run from its folder, or from another source of its events, and show it."""
        from spbench.tui.feed import Feed, LiveSource

        if self._following is not None:
            self._following.cancel()
        self.feed = Feed(folder, source or LiveSource(folder))
        self._following = asyncio.create_task(self.feed.follow())
        self.show_page("run")

    def run_goes_on(self) -> bool:
        """Whether the watched run is one that still runs."""
        from spbench.tui.feed import LiveSource

        feed = self.feed
        return feed is not None and not feed.ended and isinstance(feed.source, LiveSource)

    def start_run(self, words: Sequence[str], folder: Path | None = None) -> None:
        """Start a run in a session of its own and watch it.

        Args:
            words: What follows ``spbench``.
            folder: Where it starts; None: where the console did.
        """
        from spbench.tui.opening import launch

        start = launch(self, tuple(words), folder or Path.cwd())
        self.run_worker(start, group="launch", exit_on_error=False)

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
        """Use a theme from now on."""
        self.theme = name

    def _remember_theme(self, theme: object) -> None:
        self.remember(replace(self.settings, theme=self.theme))

    def remember(self, settings: Settings) -> None:
        """Keep settings for the next time."""
        if settings == self.settings:
            return
        self.settings = settings
        try:
            save_settings(self._settings_path, settings)
        except SpbenchError as error:
            self.notify(str(error), severity="warning", markup=False)
