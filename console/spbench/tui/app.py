"""The Textual application: its pages, keys, error handling and settings."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual._context import active_message_pump
from textual.actions import ActionParseResult
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.worker import WorkerFailed, get_current_worker

from spbench.errors import SpbenchError
from spbench.tui.app_bindings import APP_BINDINGS
from spbench.tui.context import ConsoleContext, ConsoleOptions
from spbench.tui.guide.message_log import LoggingApp
from spbench.tui.pages import PAGES, PageEntry
from spbench.tui.stored_settings import StoredSettings
from spbench.tui.stylesheet import CachingStylesheet
from spbench.tui.tab_bar import TabBar
from spbench.tui.themes import THEMES
from spbench.tui.widgets.keys import KeyBar
from spbench.tui.widgets.ordered_keys import OrderedKeysApp
from spbench_core.plugins import set_warning_listener

if TYPE_CHECKING:
    from textual.command import Provider

    from spbench.tui.guide.destinations import DestinationReader
    from spbench.tui.page import Page

_PAGE_ACTIONS = frozenset({"show_page", "choose", "cheat_sheet", "jump", "messages", "settings"})
"""Actions that are disabled while a dialog is open."""
QUIT_QUESTION = "Quit the console? (Ctrl+Q quits without this question.)"
UNSAVED_CHECK_INTERVAL = 0.5
"""Time between two checks for unsaved text, in seconds; only for the console in a browser."""
# Escape sequences that app_index.html looks for; terminals do not show them.
UNSAVED_MARK = "\x1b]7077;unsaved\x07"
SAVED_MARK = "\x1b]7077;saved\x07"


def _load_action_provider() -> type[Provider]:
    from spbench.tui.guide.palette import ActionProvider

    return ActionProvider


class ConsoleApp(OrderedKeysApp, LoggingApp):
    """The console.

    Args:
        options: The options of the console.
        on_opened: Called when the first page is shown.

    Attributes:
        context: The state that the pages share.
        pages: The pages that were shown so far, by name.
        page_errors: Errors of pages that are being closed because of them, by page.
        CONTAINS_FAILURES: Whether an error in a page closes only that page.
    """

    CONTAINS_FAILURES: ClassVar[bool] = True
    COMMANDS: ClassVar[set[Any]] = {_load_action_provider}

    TITLE = "spbench"
    CSS_PATH = Path(__file__).with_name("console.tcss")
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = list(APP_BINDINGS)

    def __init__(
        self, options: ConsoleOptions, on_opened: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._on_opened = on_opened
        self.pages: dict[str, Page] = {}
        self.page_errors: dict[str, Exception] = {}
        self._entries = {entry.name: entry for entry in PAGES}
        self._failures = itertools.count(1)
        self._browser_warns = False
        self._destination_reader: DestinationReader | None = None
        for theme in THEMES:
            self.register_theme(theme)
        self.settings = StoredSettings(options.environ, self.available_themes.keys())
        # Before any style is parsed, which depends on it.
        self.theme = self.settings.current.theme
        self.stylesheet = CachingStylesheet(self.get_css_variables())
        titles = [(entry.name, entry.title) for entry in PAGES]
        self.context = ConsoleContext(options, self, titles, self.settings.current.refresh_hz)

    def compose(self) -> ComposeResult:
        """Return the frame that is shown while the first page is loaded."""
        yield TabBar(self.context.titles, self.context.options.page)
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the first page, and offer to watch a run that is still running."""
        report = partial(self.notify, title="plug-in left out", severity="warning", markup=False)
        set_warning_listener(report)
        self.set_keymap(self.settings.current.keys)
        for entry in PAGES:
            self.add_mode(entry.name, partial(self._make_page, entry))
        self.call_after_refresh(self._open)
        if self.is_web:
            self.set_interval(UNSAVED_CHECK_INTERVAL, self._report_unsaved)

    def _make_page(self, entry: PageEntry) -> Page:
        page = self.pages[entry.name] = entry.load()(self.context)
        return page

    async def _open(self) -> None:
        """Load and show the first page; its frame is already on the terminal."""
        options = self.context.options
        try:
            if self.current_mode == "_default":  # unless a key has shown a page before
                await self.switch_mode(options.page)
        finally:
            self.screen.call_after_refresh(self._on_opened)
        if options.recorded is not None:
            self.context.replay_run(options.recorded, options.speed)
        else:
            # Not a coroutine object: Python warns if one is cancelled before it starts.
            offer: Callable[[], Awaitable[None]] = self.context.offer_to_watch
            self.run_worker(offer, group="attach", exit_on_error=False)
        if self.settings.current.keys:
            from spbench.tui.guide.actions import collect_action_ids

            self.settings.check_keys(await asyncio.to_thread(collect_action_ids))  # loads all pages
        for error in self.settings.errors:
            self.notify(error, severity="error", timeout=10, markup=False)

    def _report_unsaved(self) -> None:
        """Make the browser ask before the page is left while any text is unsaved."""
        unsaved = any(page.describe_unsaved() is not None for page in self.pages.values())
        if self._driver is not None and unsaved != self._browser_warns:
            self._browser_warns = unsaved
            self._driver.write(UNSAVED_MARK if unsaved else SAVED_MARK)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action; Textual has no other hook for errors of actions started by keys."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:
            node = default_namespace if isinstance(default_namespace, DOMNode) else self.screen
            if not self._contain_failure(error, node):
                raise
            return True

    def _handle_exception(self, error: Exception) -> None:
        """Close only the page that raised an unexpected error.

        A worker may miss widgets while its own one or the console closes; that is expected.
        """
        node: object = active_message_pump.get(None)
        if isinstance(error, WorkerFailed):
            node = get_current_worker().node
            if isinstance(error.error, NoMatches) and not self._is_open(node):
                return
        if not self._contain_failure(error, node):
            super()._handle_exception(error)

    def _is_open(self, node: DOMNode) -> bool:
        """Return whether a node is part of the console and neither is being closed."""
        screens = set(itertools.chain.from_iterable(self._screen_stacks.values()))
        is_attached = node is self or not screens.isdisjoint(node.ancestors_with_self)
        return self.is_running and is_attached and not node._pruning

    def _contain_failure(self, error: Exception, node: object) -> bool:
        """Replace the page of a node by an error report; False if that is impossible."""
        mode = self._find_mode(node)
        if not (self.CONTAINS_FAILURES and self.is_running and mode in self._entries):
            return False
        if mode in self.page_errors:
            return True  # the page is being closed; further errors follow from the first
        self.page_errors[mode] = error
        self.call_later(self._replace_page, mode, error)
        return True

    def _find_mode(self, node: object) -> str:
        """Return the mode with the screen of a node, or the current mode."""
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
        self.call_later(self.dispatch_keys)  # the closed page does not finish its last key
        if not shown:
            location = f"; the report is in {path}" if path else ""
            title = self._entries[name].title
            self.notify(f"the page {title} failed{location}", severity="error", markup=False)

    def action_show_page(self, name: str) -> None:
        """Show a page."""
        self.context.show_page(name)

    def action_choose(self, setting: str) -> None:
        """Ask for the launcher, the hosts or the environment of runs from here."""
        from spbench.tui.launch_dialogs import DIALOGS

        self.run_worker(DIALOGS[setting](self, self.context), group="choose")

    def action_help(self) -> None:
        """Show the help of the focused widget and of its page, and their keys."""
        from spbench.tui.guide.help_screen import HelpScreen, make_help_screen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(make_help_screen(self.screen))

    def action_cheat_sheet(self) -> None:
        """Show the most important keys of the page."""
        from spbench.tui.guide.cheat_sheet import CheatSheet, list_sheet_groups

        self.push_screen(CheatSheet(list_sheet_groups(self.screen)))

    def action_jump(self, kind: str = "") -> None:
        """Ask for a destination, of one kind if it is given, and go there."""
        self.jump_to(kind=kind)

    def jump_to(self, text: str = "", kind: str = "") -> None:
        """Search for a suite, run, host or case, starting with these words, and go there."""
        from spbench.tui.guide.destinations import DestinationKind, DestinationReader
        from spbench.tui.guide.jump import jump

        if self._destination_reader is None:
            self._destination_reader = DestinationReader(self.context.options)
        self.run_worker(
            jump(
                self,
                self.context,
                self.pages,
                self._destination_reader,
                text,
                DestinationKind(kind) if kind else None,
            ),
            group="jump",
            exclusive=True,
        )

    def action_help_quit(self) -> None:
        """Explain the effect of ctrl+c; Textual calls this if there is nothing to copy."""
        cancel = "x on the Run page cancels the run, " if self.context.is_run_active() else ""
        self.notify(
            f"{cancel}q or Ctrl+Q quits; Ctrl+C copies text selected with the mouse",
            title="Ctrl+C does not quit",
            timeout=4,
            markup=False,
        )

    def action_leave(self, always_asks: bool = False) -> None:
        """Quit; ask first if text is unsaved, a run is running, or always.

        Before the first page is shown, the question would be invisible.
        """
        from spbench.engine import background
        from spbench.tui.dialogs import Confirm, LeaveDialog

        texts = [page.describe_unsaved() for page in self.pages.values()]
        reasons = [text for text in texts if text]
        if self.context.is_run_active() or background.has_running():
            reasons.append(
                "A run keeps running without the console; spbench tui offers to watch it again. "
                "(To end the run itself, cancel it on the Run page.)"
            )

        if self.context.start_queue.waiting:
            reasons.append("A start that waits for its end is lost.")

        def answer(yes: bool | None) -> None:
            if leave_dialog.chose_third:
                self._save_and_quit()
            if yes:
                for page in self.pages.values():
                    page.discard_unsaved()
                self.exit(0)

        question = " ".join([*reasons, "Quit?"])
        leave_dialog = LeaveDialog(question)
        if any(texts):
            self.push_screen(leave_dialog, answer)
        elif reasons:
            self.push_screen(Confirm(question, "Quit", "Stay"), answer)
        elif always_asks and self.current_mode in self.pages:
            self.push_screen(Confirm(QUIT_QUESTION, "Quit", "Stay", enter_is_yes=True), answer)
        else:
            self.exit(0)

    @work(group="leave")
    async def _save_and_quit(self) -> None:
        """Save all unsaved texts, and quit unless one of them stays unsaved."""
        for page in self.pages.values():
            if page.describe_unsaved() is not None and not await page.save_unsaved():
                return
        self.exit(0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the choice of pages and launch settings while a dialog is open."""
        if action in _PAGE_ACTIONS and self._has_dialog:
            return False
        if action == "choose" and self.context.readonly:
            return False
        return super().check_action(action, parameters)

    @property
    def _has_dialog(self) -> bool:
        """Whether a dialog is open; the palette runs actions of the screen behind it."""
        is_palette = isinstance(self.screen, CommandPalette)
        screen = self.screen_stack[-2] if is_palette else self.screen
        return screen.is_modal

    def get_key_display(self, binding: Binding) -> str:
        """Return the name of a key as the texts write it: ``F5``, ``^N``, ``Esc``.

        A single letter is shown as typed: ``b`` and ``B`` differ.
        """
        display = super().get_key_display(binding)
        return display if len(display) == 1 else display.title()

    def action_command_palette(self) -> None:
        """Open the palette.

        It may be open on another page: a run that starts shows its page. Textual gives all palettes
        one id, so that a second one would be an error.
        """
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette())

    def action_settings(self, name: str = "") -> None:
        """Ask for a setting unless one is named, and for its value."""
        from spbench.tui.settings_dialogs import choose_setting

        self.run_worker(choose_setting(self, name), group="settings")

    def choose_theme(self, name: str) -> None:
        """Use a theme, and remember it."""
        self.theme = name
        self.save_setting("theme", name)

    def save_setting(self, name: str, value: str | float) -> bool:
        """Remember a setting; return whether it is, or show why it is not."""
        reason = "the console is readonly"
        if not self.context.readonly:
            try:
                self.settings.save(name, value)
                return True
            except SpbenchError as error:
                reason = str(error)
        self.notify(reason, title=f"{name} not remembered", severity="warning", markup=False)
        return False
