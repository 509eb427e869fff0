"""The application: its pages, its keys, and the settings that it remembers."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual._context import active_message_pump
from textual.actions import ActionParseResult
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.events import AppBlur, Event, Key, Paste
from textual.screen import Screen
from textual.widgets import Footer

from spbench.errors import SpbenchError, UsageError
from spbench.tui.context import ConsoleContext, ConsoleOptions
from spbench.tui.pages import PAGES, PageEntry
from spbench.tui.settings import (
    check_action_ids,
    has_explicit_path,
    load_settings,
    save_theme,
    settings_path,
)
from spbench.tui.tab_bar import TabBar
from spbench.tui.themes import THEMES
from spbench_core.plugins import set_warning_listener

if TYPE_CHECKING:
    from spbench.tui.page import Page

KEY_WAIT_STEP = 0.005
MAX_KEY_WAIT_STEPS = 100
"""Seconds to a turn of the event loop, and after how many a key goes on although the one before is
not known to be handled. On a loaded machine a turn takes longer, and the console has its time."""
UNSAVED_CHECK_INTERVAL = 0.5
"""Seconds between two looks at what is not saved, for a browser that shows the console."""
UNSAVED_MARK = "\x1b]7077;unsaved\x07"
SAVED_MARK = "\x1b]7077;saved\x07"
"""The mark that the browser's page looks for in the terminal's data, which shows nothing of it."""


class ConsoleApp(App[int]):
    """The console.

    Attributes:
        context: The state that the pages share.
        pages: The pages that were shown so far, by name.
        failed: Errors of pages that are just being closed for them.
        CONTAINS_FAILURES: Whether an error in a page closes that page alone.
    """

    CONTAINS_FAILURES: ClassVar[bool] = True

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
        Binding(
            "L",
            "choose('launcher')",
            "Launcher",
            show=False,
            id="launch.launcher",
            tooltip="Choose the launcher of runs from here, or one whose lines are shown",
        ),
        Binding(
            "H",
            "choose('hosts')",
            "Hosts",
            show=False,
            id="launch.hosts",
            tooltip="Choose the hosts of runs from here",
        ),
        Binding(
            "E",
            "choose('environment')",
            "Environment",
            show=False,
            id="launch.environment",
            tooltip="Add to the environment of the ranks of runs from here",
        ),
        Binding("q,ctrl+q", "leave", "Quit", id="app.quit", tooltip="Quit the console"),
        Binding(
            "f1,question_mark", "help", "Help", id="app.help", tooltip="Help of what has focus"
        ),
        Binding(
            "ctrl+p", "command_palette", "Palette", id="app.palette", tooltip="Find any action"
        ),
    ]

    def __init__(self, options: ConsoleOptions) -> None:
        super().__init__()
        self.pages: dict[str, Page] = {}
        self.page_errors: dict[str, Exception] = {}
        self._entries = {entry.name: entry for entry in PAGES}
        self._failures = itertools.count(1)
        self._typed: deque[Event] = deque()
        self._behind: Iterator[DOMNode] | None = None
        self._browser_asks = False
        for theme in THEMES:
            self.register_theme(theme)
        self._settings_path = settings_path(options.environ)
        self._settings_named = has_explicit_path(options.environ)
        themes = self.available_themes.keys()
        loaded = load_settings(self._settings_path, themes, explicit=self._settings_named)
        self.settings = loaded.settings
        self._complaints = loaded.errors
        titles = [(entry.name, entry.title) for entry in PAGES]
        self.context = ConsoleContext(options, self, titles, self.settings.refresh_hz)

    def compose(self) -> ComposeResult:
        """Return the frame that is shown while the first page is loaded."""
        yield TabBar(self.context.titles, self.context.options.page)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show the first page, and offer what is still going on."""
        report = partial(self.notify, title="plug-in left out", severity="warning", markup=False)
        set_warning_listener(report)
        self.theme = self.settings.theme
        self.set_keymap(self.settings.keys)
        for entry in PAGES:
            self.add_mode(entry.name, partial(self._make_page, entry))
        self.call_after_refresh(self._open)
        if self.is_web:
            self.set_interval(UNSAVED_CHECK_INTERVAL, self._tell_browser)

    def _make_page(self, entry: PageEntry) -> Page:
        page = self.pages[entry.name] = entry.load()(self.context)
        return page

    async def _open(self) -> None:
        """Load and show the first page; the frame around it is on the terminal by now."""
        from spbench.tui.palette import collect_action_ids

        opening = self.context.options
        if self.current_mode == "_default":  # no key was quicker
            await self.switch_mode(opening.page)
        if opening.recorded is not None:
            self.context.replay_run(opening.recorded, opening.speed)
        else:
            offer = self.context.offer_to_watch()
            self.run_worker(offer, group="attach", exit_on_error=False)
        if self.settings.keys:
            known = await asyncio.to_thread(collect_action_ids)  # it loads all pages
            self._complaints += check_action_ids(self._settings_path, self.settings, known)
        for complaint in self._complaints:
            self.notify(complaint, severity="error", timeout=10, markup=False)

    # Keys

    async def on_event(self, event: Event) -> None:
        """Hold a key back until the one before was handled: it may have moved the focus."""
        if isinstance(event, AppBlur):
            return  # the focus stays, and the keys with it: other windows stand beside this one
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._behind is None:
            await self._give_typed()

    async def _give_typed(self) -> None:
        """Give keys to what has the focus, up to the first that has to be waited for."""
        self._behind = None
        while self._typed and self._behind is None and self.is_running:
            event = self._typed.popleft()
            target = self.focused or self.screen
            await super().on_event(event)
            if event.is_forwarded:
                nodes = target.ancestors_with_self
                # A second time for the messages that were sent because of the key.
                self._behind = behind = iter([*nodes, *nodes])
                self._wait(behind, MAX_KEY_WAIT_STEPS)
                await self._give_behind(behind)

    async def _give_behind(self, nodes: Iterator[DOMNode]) -> None:
        """Give the next key when one that bubbles through the queues of these nodes is through."""
        for node in nodes:
            if node.call_later(self._give_behind, nodes):
                return
        await self._give_after(nodes)

    async def _give_after(self, nodes: Iterator[DOMNode]) -> None:
        """Give the next key, if it is the one behind these nodes' that is waited for."""
        if self._behind is nodes:
            await self._give_typed()

    def _wait(self, nodes: Iterator[DOMNode], turns: int) -> None:
        """Wait so many turns of the event loop for these nodes, and then no longer."""
        if turns and self._behind is nodes:
            asyncio.get_running_loop().call_later(KEY_WAIT_STEP, self._wait, nodes, turns - 1)
        elif self._behind is nodes:
            self.call_later(self._give_after, nodes)

    def _tell_browser(self) -> None:
        """Let the browser ask before its page is left, as long as something is not saved."""
        unsaved = any(page.describe_unsaved() is not None for page in self.pages.values())
        if self._driver is not None and unsaved != self._browser_asks:
            self._browser_asks = unsaved
            self._driver.write(UNSAVED_MARK if unsaved else SAVED_MARK)

    # Failures

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action. Of those that keys call Textual has no other place to catch an error."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:
            node = default_namespace if isinstance(default_namespace, DOMNode) else self.screen
            if not self._contained(error, node):
                raise
            return True

    def _handle_exception(self, error: Exception) -> None:
        """Close the page where an error was raised and nobody expected it; all else goes on."""
        if not self._contained(error, active_message_pump.get(None)):
            super()._handle_exception(error)

    def _contained(self, error: Exception, node: object) -> bool:
        """Put a report in the place of the page of a node; False where that cannot be."""
        mode = self._mode_of(node)
        if not (self.CONTAINS_FAILURES and self.is_running and mode in self._entries):
            return False
        if mode in self.page_errors:
            return True  # it goes already; what else goes wrong there follows from the first
        self.page_errors[mode] = error
        self.call_later(self._replace_page, mode, error)
        return True

    def _mode_of(self, node: object) -> str:
        """Return the mode whose screens a node is on; of what is on none the one that is shown."""
        nodes = node.ancestors_with_self if isinstance(node, DOMNode) else ()
        for mode, screens in self._screen_stacks.items():
            if any(screen in nodes for screen in screens):
                return mode
        return self.current_mode

    async def _replace_page(self, name: str, error: Exception) -> None:
        from spbench.tui.failed_page import FailedPage, format_report, write_report

        report = format_report(error, name)
        home = None if self.context.readonly else self.context.options.home
        path = await asyncio.to_thread(write_report, home, report) if home else None
        shown = self.current_mode == name
        stand_in = f"failed-{next(self._failures)}"
        self.add_mode(stand_in, partial(FailedPage, self.context, name, report, path))
        if shown:
            await self.switch_mode(stand_in)
        self.pages.pop(name, None)
        await self.remove_mode(name)
        self.add_mode(name, partial(self._make_page, self._entries[name]))
        self.page_errors.pop(name)
        self.call_later(self._give_typed)  # a key that the page got is not handled any more
        if not shown:
            kept = f"; the report is in {path}" if path else ""
            title = self._entries[name].title
            self.notify(f"the page {title} failed{kept}", severity="error", markup=False)

    # Actions

    def action_show_page(self, name: str) -> None:
        """Show a page."""
        self.context.show_page(name)

    def action_choose(self, what: str) -> None:
        """Ask for the launcher, the hosts or the environment of runs from here."""
        from spbench.tui import launching

        asking = {
            "launcher": launching.choose_launcher,
            "hosts": launching.choose_hosts,
            "environment": launching.choose_environment,
        }
        self.run_worker(asking[what](self, self.context), group="choose")

    def action_help(self) -> None:
        """Say what the focused widget is for, and its keys."""
        from spbench.tui.help import HelpScreen, build_help, list_active_keys

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(build_help(self.screen), list_active_keys(self.screen)))

    def action_leave(self) -> None:
        """Quit at once, or ask where something would be lost or goes on."""
        from spbench.engine import background
        from spbench.tui.dialogs import Confirm

        reasons = [told for page in self.pages.values() if (told := page.describe_unsaved())]
        if self.context.is_run_active() or background.any_started():
            reasons.append(
                "A run keeps running without the console; `spbench tui` offers to watch it again. "
                "(To end the run itself, cancel it on the Run page.)"
            )

        def answer(yes: bool | None) -> None:
            if yes:
                for page in self.pages.values():
                    page.discard_unsaved()
                self.exit(0)

        if reasons:
            self.push_screen(Confirm(" ".join([*reasons, "Quit?"]), "Quit", "Stay"), answer)
        else:
            self.exit(0)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return every action there is for the palette, each under its area."""
        from spbench.tui.palette import list_commands

        return list_commands(screen, self.context.readonly, self.choose_theme)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave pages alone while a question is open."""
        if action in ("show_page", "choose") and self.screen.is_modal:
            return False
        if action == "choose" and self.context.readonly:
            return False
        return super().check_action(action, parameters)

    # Settings

    def choose_theme(self, name: str) -> None:
        """Use a theme, and the next time too, unless nothing may be written."""
        self.theme = name
        if self.context.readonly or name == self.settings.theme:
            return
        try:
            if self._complaints:
                raise UsageError(f"fix {self._settings_path} first; it was left unchanged")
            save_theme(self._settings_path, name, explicit=self._settings_named)
        except SpbenchError as error:
            why = str(error)
            self.notify(why, title="theme not remembered", severity="warning", markup=False)
        else:
            self.settings = replace(self.settings, theme=name)
