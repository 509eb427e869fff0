"""Starts while a run is running: the question, and starts that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.widgets import Button, Static

from spbench.tui.dialogs import ThirdAnswerDialog

if TYPE_CHECKING:
    from textual.app import App

    from spbench.record.runs.folder import RunFolder
    from spbench.tui.feed import Feed

POLL_INTERVAL = 0.5
"""Time between two checks whether a run has ended, in seconds; that run is being measured."""


class WatchedRun(Protocol):
    """The part of the state that the pages share that the queue needs."""

    feed: Feed | None
    starting_since: float | None

    def is_run_active(self) -> bool: ...
    def watch_run(self, folder: RunFolder, *, show: bool) -> None: ...
    def show_page(self, name: str) -> None: ...


class StartDecision(Enum):
    """Whether a start may begin: at once, after it has waited, or not at all."""

    AT_ONCE = auto()
    AFTER_WAIT = auto()
    REJECTED = auto()


@dataclass(eq=False)
class WaitingStart:
    """A start that waits.

    Attributes:
        request: The run in words.
        running: The name of the run that it waits for.
    """

    request: str
    running: str


class RunIsOnDialog(ThirdAnswerDialog):
    """A question before a second run is started next to one that is running.

    Args:
        format_question: Returns the question, which changes with the progress of the run.
        has_ended: Returns whether the run has ended, so that the start need not wait.
    """

    HELP = """\
Two runs at once disturb each other. A and Enter start this one when the other has ended, Y starts
it now, and N or Escape does not start it. A start that waits is named above the keys; x on the Run
page removes it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "third", "After it", id="dialog.after"),
    ]

    def __init__(self, format_question: Callable[[], str], has_ended: Callable[[], bool]) -> None:
        super().__init__(format_question(), "Now", "Cancel", "After it (a)", enter_is_third=True)
        self._format_question = format_question
        self._has_ended = has_ended

    def on_mount(self) -> None:
        """Keep the progress of the run up to date."""
        self.set_interval(POLL_INTERVAL, self._follow_run)

    def _follow_run(self) -> None:
        self.show_question(self._format_question())
        after = self.query_one("#third", Button)
        if after.display and self._has_ended():
            start = self.query_one("#yes", Button)
            start.label = "Start (y)"
            if after.has_focus:
                start.focus()
            after.display = False


class CancelBothDialog(ThirdAnswerDialog):
    """A question before a run is cancelled for which a start waits."""

    HELP = """\
W removes only the start that waits, Y also cancels the run, and N or Escape changes nothing."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "third", "The waiting start", id="dialog.remove-start"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__(question, "Both", "Neither", "The waiting start (w)")


class StartQueue:
    """Lets starts begin one after the other.

    Args:
        context: The watched run, and the page that is shown.
        home: The folder of the runs.
        app: The application, which shows the question.

    Attributes:
        waiting: The starts that wait, the next one first.
    """

    def __init__(self, context: WatchedRun, home: Path, app: App[int]) -> None:
        self.waiting: list[WaitingStart] = []
        self._context = context
        self._home = home
        self._app = app

    async def admit(self, request: str, *, show: bool = True) -> StartDecision:
        """Return whether a start may begin; ask if a run of this home is running.

        Args:
            request: The run in words.
            show: Whether to show the Run page while it waits.
        """
        from spbench.engine.background import find_running

        running = await asyncio.to_thread(find_running, self._home)
        feed = self._context.feed
        if feed is not None and feed.status.is_final:  # its process may still write the report
            running = [folder for folder in running if folder.path != feed.folder.path]
        if not running:
            return StartDecision.AT_ONCE
        dialog = RunIsOnDialog(
            partial(self._format_question, running[-1], request),
            partial(self._has_ended, running[-1]),
        )
        if await self._app.push_screen_wait(dialog):
            return StartDecision.AT_ONCE
        if not dialog.chose_third:
            return StartDecision.REJECTED
        if show:
            if not self._context.is_run_active():
                self._context.watch_run(running[-1], show=False)
            self._context.show_page("run")
        return StartDecision.AFTER_WAIT if await self.wait(request) else StartDecision.REJECTED

    async def wait(self, request: str) -> bool:
        """Wait until no run of this home runs; return False if the start was removed."""
        running = await asyncio.to_thread(self._update_running, [])
        start = WaitingStart(request, await asyncio.to_thread(_name_newest, running))
        self.waiting.append(start)
        try:
            while start in self.waiting:
                is_next = self.waiting[0] is start and self._context.starting_since is None
                if is_next and not running:
                    return True
                await asyncio.sleep(POLL_INTERVAL)
                previous = running
                running = await asyncio.to_thread(self._update_running, previous)
                if running != previous and running:
                    start.running = await asyncio.to_thread(_name_newest, running)
            return False
        finally:
            if start in self.waiting:
                self.waiting.remove(start)

    def remove_next(self) -> bool:
        """Remove the next start that waits; return False if no start waits."""
        if not self.waiting:
            return False
        start = self.waiting.pop(0)
        self._app.notify(f"{start.request} will not start", timeout=6, markup=False)
        return True

    def describe(self) -> str:
        """Return a line on the start that waits; empty without one."""
        if not self.waiting:
            return ""
        start = self.waiting[0]
        more = f" (+{len(self.waiting) - 1} more)" if len(self.waiting) > 1 else ""
        return f"… {start.request} waits until {start.running} has ended{more}"

    def _update_running(self, previous: list[RunFolder]) -> list[RunFolder]:
        """Return the runs of this home that are running, the oldest first.

        Those found before are checked first, so that the home, which may have thousands of runs, is
        listed only when they have ended. They count until their process has ended, which is after
        the report.
        """
        from spbench.engine.background import find_running

        return [folder for folder in previous if folder.is_alive()] or find_running(self._home)

    def _has_ended(self, folder: RunFolder) -> bool:
        """Return whether a run is the watched one and has ended."""
        feed = self._context.feed
        return feed is not None and feed.folder.path == folder.path and feed.status.is_final

    def _format_question(self, folder: RunFolder, request: str) -> str:
        """Ask whether to start a run after one that was running."""
        from spbench.engine.remaining_time import format_remaining
        from spbench.record.run_parts import count_cases

        reason = "Two runs at once disturb each other."
        feed = self._context.feed
        run = None if feed is None else feed.state.run
        if feed is None or run is None or feed.folder.path != folder.path:
            return (
                f"The run {folder.id} of this home is running. {reason} Start {request} after it?"
            )
        if self._has_ended(folder):
            return f"{run.suite} has ended. Start {request}?"
        progress = (
            count_cases(feed.state.cases.values()).describe(ended=False),
            format_remaining(feed.remaining),
        )
        progress_text = ", ".join(filter(None, progress))
        return f"{run.suite} is running ({progress_text}). {reason} Start {request} after it?"


def _name_newest(running: list[RunFolder]) -> str:
    """Return the suite of the newest run; empty without one."""
    from spbench.record.runs.history import read_summary

    return read_summary(running[-1]).suite or running[-1].id if running else ""


class WaitingNote(Static):
    """The line above the keys on a start that waits; hidden without one."""

    DEFAULT_CSS = """
    WaitingNote { display: none; height: 1; padding: 0 1; color: $text-accent; }
    """

    def __init__(self) -> None:
        super().__init__("", id="waiting-note", markup=False)
        self._text = ""

    def show(self, text: str) -> None:
        """Show a line; empty hides it."""
        if text != self._text:
            self._text = text
            self.update(text, layout=False)
            self.display = bool(text)
