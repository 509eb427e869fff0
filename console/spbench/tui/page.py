"""The base class of all pages: tab bar, footer, help, dialogs, and --readonly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import WorkerError

from spbench.errors import SpbenchError
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import Confirm, FaultsAgainDialog, OnlyFailedDialog
from spbench.tui.start_queue import StartDecision, WaitingNote
from spbench.tui.tab_bar import Tab, TabBar, find_tabs_width, fit_status, format_run_status
from spbench.tui.widgets.keys import KeyBar
from spbench_core.events.statuses import CaseStatus

if TYPE_CHECKING:
    from spbench.record.runs.folder import RunFolder

_MOUNT_POLL_INTERVAL = 0.01
"""Time between two checks whether all widgets are mounted, in seconds."""


class Page(Screen[None]):
    """A page of the console.

    A page composes its body in `compose_body` and updates it in `refresh_page`, which is called at
    most ``refresh_hz`` times per second, and only while the page is shown.

    Args:
        context: The state that the pages share.

    Attributes:
        NAME: The name of the page in the palette, in ids of keys and for ``show_page``.
        HELP: The text that F1 shows if the focused widget has no help.
        MODIFYING_ACTIONS: Actions with effects outside the console; --readonly disables them.
        FOOTER: Ids of the most important keys, the most important first. Key bar and cheat sheet
            show those that have an effect now.
        ticks_hz: The rate of the periodic updates.
    """

    NAME: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    MODIFYING_ACTIONS: ClassVar[frozenset[str]] = frozenset()
    FOOTER: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: ConsoleContext) -> None:
        self.context = context
        self._offered: tuple[tuple[bool, str | None], ...] = ()
        super().__init__()

    def compose(self) -> ComposeResult:
        """Yield tab bar, body and key bar."""
        yield TabBar(self.context.titles, self.NAME)
        yield from self.compose_body()
        yield WaitingNote()
        yield KeyBar(
            self.FOOTER,
            lambda action: self.is_mounted and self.offers(action),
            self.find_key_title,
        )

    def compose_body(self) -> ComposeResult:
        """Yield the widgets of the page itself."""
        yield from ()

    def on_mount(self) -> None:
        """Start the periodic update."""
        self._start_ticks()

    def _start_ticks(self) -> None:
        self.ticks_hz = self.context.refresh_hz
        self._ticks = self.set_interval(1 / self.ticks_hz, self._tick)

    async def on_unmount(self) -> None:
        """Cancel the workers of the page and wait until they have ended."""
        # A worker that is cancelled a second time while it cleans up would leave processes behind.
        self.cancel_work()
        for worker in [worker for worker in self.workers if worker.node is self]:
            with suppress(WorkerError):
                await worker.wait()

    def cancel_work(self, group: str | None = None) -> None:
        """Cancel all workers of the page, or those of a group, unless cancelled before."""
        for worker in self.workers:
            selected = worker.node is self and group in (None, worker.group)
            if selected and not worker.is_cancelled:
                worker.cancel()

    def on_screen_resume(self) -> None:
        """Update the page at once when it is shown again."""
        self.refresh_bindings()  # the key bar does not change behind a dialog
        self.call_after_refresh(self._tick)

    def on_tab_clicked(self, event: Tab.Clicked) -> None:
        """Open the page of the tab."""
        self.context.show_page(event.page)

    @property
    def is_followed(self) -> bool:
        """Whether the page has to be up to date now."""
        return self.is_current

    def _tick(self) -> None:
        is_quitting = self.app.return_code is not None  # widgets may be gone already
        if is_quitting or not (self.is_followed and self.is_mounted and self.app.is_running):
            return
        if self.ticks_hz != self.context.refresh_hz:  # changed in the settings
            self._ticks.stop()
            self._start_ticks()
        self.refresh_page()
        titles = dict(self.context.titles)
        location = (titles.get(self.NAME, ""), *filter(None, self.describe_location()))
        self.query_one(TabBar).show(self._format_status(), location)
        self.query_one(WaitingNote).show(self._describe_waiting())
        self._update_offers()

    def _update_offers(self) -> None:
        """Show other keys if the effect or the title of one has changed."""
        offered = tuple(
            (self.offers(action), self.find_key_title(action)) for action in self._footer_actions
        )
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    @cached_property
    def _footer_actions(self) -> tuple[str, ...]:
        """The page's own actions that the key bar can show."""
        bindings = (binding for binding in self.BINDINGS if isinstance(binding, Binding))
        return tuple(binding.action for binding in bindings if binding.id in self.FOOTER)

    @staticmethod
    def has_use(action: str, context: ConsoleContext) -> bool:
        """Return whether the palette offers an action of this page while another is shown."""
        return True

    def describe_location(self) -> tuple[str, ...]:
        """Return the names of run, case and the like, outer ones first; called often."""
        return ()

    def offers(self, action: str) -> bool:
        """Return whether an action of the page has an effect now; it is called often.

        The keys of other actions work, too, and explain why there is no effect.
        """
        return True

    def find_key_title(self, action: str) -> str | None:
        """Return the present title of an offered action; None for that of its binding."""
        return None

    def _format_status(self) -> str:
        context = self.context
        run = format_run_status(context.feed)
        if context.starting_since is not None:
            run = "… starting a run"
        elif context.has_failed_start and context.feed is None:
            run = "✗ not started"
        elif context.unwatched_run is not None and context.feed is None:
            run = f"… {context.unwatched_run.id} running"
        parts = (context.launch_title, "readonly" if context.readonly else "")
        launch = "  ".join(filter(None, parts))
        width = self.size.width - find_tabs_width(context.titles) - 1
        return fit_status(run, launch, width, keeps_run=context.is_run_active())

    def _describe_waiting(self) -> str:
        line = self.context.start_queue.describe()
        key = "x" if self.NAME in ("run", "results") else "x on page 2"
        return f"{line}; {key} removes it" if line else ""

    def start_action(self, action: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start an action that may open dialogs and wait for files."""
        self.run_worker(partial(action, *args), group="action")

    def show_error(self, message: str, timeout: float = 8) -> None:
        """Show an error message for ``timeout`` seconds."""
        self.app.notify(message, severity="error", timeout=timeout, markup=False)

    @contextmanager
    def show_errors(self, title: str) -> Iterator[None]:
        """Show an error message with a title if an action fails."""
        try:
            yield
        except SpbenchError as error:
            self.show_error(f"{title}: {error}")

    async def confirm(
        self, question: str, yes: str, no: str, *, enter_is_yes: bool = False
    ) -> bool:
        """Ask a question and return whether the answer is yes.

        Args:
            question: The question.
            yes: The first answer.
            no: The other answer.
            enter_is_yes: Whether Enter takes the first answer, which loses nothing.
        """
        dialog = Confirm(question, yes, no, enter_is_yes=enter_is_yes)
        return await self.app.push_screen_wait(dialog)

    async def rerun(self, folder: RunFolder) -> None:
        """Start a run again; ask first only if it has planted faults."""
        question = f"Start run {folder.id} again as a new run?"
        with_faults = await self.ask_again(folder, question, "Run again", is_plain=True)
        if with_faults is not None:
            await self.start_again(folder, with_faults=with_faults)

    async def start_again(
        self,
        folder: RunFolder,
        repeat: int | None = None,
        *,
        with_faults: bool = True,
        show: bool = True,
    ) -> bool:
        """Start a run again; ask only if a run is running. Return whether it was started.

        Args:
            folder: The run.
            repeat: Launches of each case. Default: as in the run.
            with_faults: Whether its planted faults are planted again.
            show: Whether to show the Run page.
        """
        from spbench.engine.background import build_rerun_args, find_start_folder

        try:
            build = partial(build_rerun_args, folder, repeat, with_faults=with_faults)
            args = await asyncio.to_thread(build)
            cwd = await asyncio.to_thread(find_start_folder, folder)
            admission = await self.context.start_queue.admit(f"{folder.id} again", show=show)
            if admission is StartDecision.REJECTED:
                return False
            show = show and admission is StartDecision.AT_ONCE
            self.context.start_run(args, cwd, show=show)
        except SpbenchError as error:
            self.show_error(str(error), timeout=10)
            return False
        return True

    async def rerun_failed_cases(
        self, folder: RunFolder, statuses: Mapping[str, CaseStatus]
    ) -> None:
        """Start a run of the failed and cancelled cases of a run, after a question.

        If there are both, the user can choose only the failed ones. Planted faults are a second
        question then.
        """
        from spbench.record.messages.enumeration import ask_to_run_again

        question = f"{ask_to_run_again(statuses)}\nOf run {folder.id}."
        failed = {id_: status for id_, status in statuses.items() if status.is_bad}
        is_mixed = bool(failed) and CaseStatus.CANCELLED in statuses.values()
        with_cancelled = True
        if is_mixed:
            dialog = OnlyFailedDialog(question)
            with_cancelled = await self.app.push_screen_wait(dialog)
            if not with_cancelled and not dialog.chose_third:
                return
            if not with_cancelled:
                question = f"{ask_to_run_again(failed)}\nOf run {folder.id}."
        with_faults = await self.ask_again(folder, question, "Run", is_plain=is_mixed)
        if with_faults is None:
            return
        admission = await self.context.start_queue.admit(f"the failed cases of {folder.id}")
        if admission is not StartDecision.REJECTED:
            self.context.start_failed_cases(
                folder,
                with_faults=with_faults,
                with_cancelled=with_cancelled,
                show=admission is StartDecision.AT_ONCE,
            )

    async def ask_again(
        self, folder: RunFolder, question: str, yes: str, *, is_plain: bool = False
    ) -> bool | None:
        """Return whether to run again with the planted faults of a run; None: not at all.

        A start that ``is_plain`` has no question unless the run has planted faults.
        """
        faults = await asyncio.to_thread(find_planted_faults, folder)
        if not faults and is_plain:
            return True
        if not faults:
            return await self.confirm(question, yes, "Cancel", enter_is_yes=True) or None
        question += f" It has planted faults: {', '.join(faults)}."
        dialog = FaultsAgainDialog(question)
        is_with_faults = await self.app.push_screen_wait(dialog)
        return is_with_faults if is_with_faults or dialog.chose_third else None

    async def confirm_overwrite(self, path: Path) -> bool:
        """Return whether a file may be written; ask if it exists."""
        if not await asyncio.to_thread(path.exists):
            return True
        return await self.confirm(f"{path} is there. Replace it?", "Replace", "Keep")

    async def wait_until_mounted(self) -> None:
        """Wait until all widgets are mounted, which may take long on a busy machine."""
        while not all(node.is_mounted for node in self.walk_children(Widget)):
            await asyncio.sleep(_MOUNT_POLL_INTERVAL)

    def refresh_page(self) -> None:
        """Update the page; cheap if there are no changes."""

    def describe_unsaved(self) -> str | None:
        """Return a message on text that would be lost by quitting; None if there is none."""
        return None

    async def save_unsaved(self) -> bool:
        """Save the unsaved text, which may ask questions; return whether it is saved."""
        return True

    def discard_unsaved(self) -> None:
        """Discard unsaved text, after the user has agreed to quit."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable modifying actions in a readonly console."""
        return not (self.context.readonly and action in self.MODIFYING_ACTIONS)


def find_planted_faults(folder: RunFolder) -> Sequence[str]:
    """Return the planted faults of a run."""
    from spbench.record.runs.history import read_summary
    from spbench.report.comparison.conditions import find_faults

    return find_faults(read_summary(folder))


async def show_page(app: App[Any], name: str) -> Screen[object]:
    """Show a page and return it when it has all its widgets.

    A page that failed is replaced by the screen with its error.
    """
    if app.current_mode != name:
        await app.switch_mode(name)
    shown = app.screen
    if isinstance(shown, Page):
        await shown.wait_until_mounted()
    return shown
