"""The state that all pages share, and the runs that they start and watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import FailedRunError, SpbenchError
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice

if TYPE_CHECKING:
    from textual.app import App

    from spbench.engine.background import Launched
    from spbench.record.runs.folder import RunFolder
    from spbench.tui.feed import EventSource, Feed

FOLDER_POLL_INTERVAL = 0.05
"""Seconds between two looks for the folder of a run that was started."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options with which the console is opened.

    Attributes:
        home: The folder of the runs.
        environ: The environment that runs are started in.
        folder: The absolute path in which suites and hostfiles are looked for and runs started.
        suite: A suite to open.
        page: The page to show first.
        recorded: A recorded run to play again, and how fast; None: as fast as it can be read.
    """

    home: Path
    environ: Mapping[str, str]
    folder: Path = field(default_factory=Path.cwd)
    suite: Path | None = None
    page: str = "suites"
    launch_choice: LaunchChoice = NOTHING_CHOSEN
    recorded: RunFolder | None = None
    speed: float | None = 1.0
    readonly: bool = False


class ConsoleContext:
    """The hosts in use, the watched run, and the start of runs.

    Args:
        opening: The options with which the console was opened.
        app: The application that shows messages and runs tasks.
        titles: Name and title of each page, in the order of their digits.
        refresh_hz: Drawings a second of a page, at most.

    Attributes:
        hosts: The hosts and the launcher that runs started here use.
        environment: Variables of their ranks, ``NAME=VALUE``, beside those of the suite.
        feed: The run that is watched, None before there is one.
        starting: Since when a run is being started that has no folder yet, by the monotonic clock;
            None where none is.
        suite: A suite that the Suites page opens when it is shown next.
    """

    def __init__(
        self,
        options: ConsoleOptions,
        app: App[int],
        titles: Sequence[tuple[str, str]],
        refresh_hz: float,
    ) -> None:
        self.options = options
        self.titles = titles
        self.refresh_hz = refresh_hz
        self.launch_choice = options.launch_choice
        self.environment: tuple[str, ...] = ()
        self.feed: Feed | None = None
        self.starting_since: float | None = None
        self.suite = options.suite
        self._app = app
        self._following: asyncio.Task[None] | None = None

    @property
    def readonly(self) -> bool:
        """Whether nothing may be started, cancelled or written."""
        return self.options.readonly

    @property
    def overrides(self) -> tuple[str, ...]:
        """The ``--set`` of runs from here."""
        return tuple(f"launch.env.{variable}" for variable in self.environment)

    @property
    def launch_title(self) -> str:
        """The choices for runs from here in a few words; empty where there are none."""
        names = ",".join(variable.partition("=")[0] for variable in self.environment)
        return "  ".join(filter(None, (self.launch_choice.title, f"env: {names}" if names else "")))

    def show_page(self, name: str) -> None:
        """Show a page."""
        if self._app.current_mode != name:
            self._app.switch_mode(name)

    def open_suite(self, path: Path) -> None:
        """Open a suite on the Suites page, and show that."""
        self.suite = path
        self.show_page("suites")

    # The watched run

    def watch_run(
        self, folder: RunFolder, source: EventSource | None = None, show: bool = True
    ) -> None:
        """Follow a run from its folder, or from another source of its events; show its page too."""
        from spbench.engine.estimate import estimate_recorded
        from spbench.tui.feed import Feed, LiveSource

        if self._following is not None:
            self._following.cancel()
        feed = self.feed = Feed(folder, source or LiveSource(folder))
        self._following = asyncio.create_task(feed.follow())

        async def estimate() -> None:
            feed.estimate = await asyncio.to_thread(estimate_recorded, folder, self.options.environ)

        if source is None:  # nothing remains of a run that is played again
            self._app.run_worker(estimate(), group="estimate", exclusive=True)
        if show:
            self.show_page("run")

    def replay_run(self, folder: RunFolder, speed: float | None) -> None:
        """Play a recorded run again; ``speed`` 1 is as fast as it was, None as fast as can be."""
        from spbench.record.runs.follow import RecordedEvents
        from spbench.tui.feed import ReplaySource

        self.watch_run(folder, ReplaySource(RecordedEvents(folder.events), speed))

    def is_run_active(self) -> bool:
        """Whether the watched run is one that still runs."""
        from spbench.tui.feed import LiveSource

        feed = self.feed
        return feed is not None and not feed.ended and isinstance(feed.source, LiveSource)

    async def offer_to_watch(self) -> None:
        """Ask whether to watch a run that is still going on, where there is one."""
        from spbench.engine import background
        from spbench.tui.dialogs import Confirm

        runs = await asyncio.to_thread(background.running, self.options.home)
        if not runs:
            return
        question = f"The run {runs[-1].id} is still running. Watch it?"
        if len(runs) > 1:
            question += f" ({len(runs)} runs are running; the Results page has them all)"
        if await self._app.push_screen_wait(Confirm(question, "Watch", "Not now")):
            self.watch_run(runs[-1])

    # Starting

    def start_run(self, args: Sequence[str], folder: Path | None = None) -> None:
        """Start a run in a session of its own and watch it; another has to wait for that.

        Args:
            args: The words that follow ``spbench run``.
            folder: The folder in which it starts; None: the console's own.
        """
        if self.starting_since is not None:
            self._app.notify("not started: another run is just being started", severity="warning")
            return
        self.starting_since = time.monotonic()
        self.show_page("run")
        self._app.run_worker(
            self._launch(tuple(args), folder or self.options.folder), group="launch"
        )

    def start_failed_cases(self, folder: RunFolder) -> None:
        """Start a run of what failed in a recorded one, where that was started."""
        from spbench.engine.background import started_in

        self.start_run(("--failed", folder.id), started_in(folder))

    def start_suite(
        self,
        path: Path,
        cases: Sequence[str] = (),
        inject: str | None = None,
        *,
        oversubscribe: bool = False,
    ) -> None:
        """Start a run of a suite, or of some of its cases, on the hosts in use.

        ``oversubscribe`` allows more ranks and memory than this machine has.
        """
        from spbench.engine.background import run_words

        hosts = (
            replace(self.launch_choice, oversubscribe=True) if oversubscribe else self.launch_choice
        )
        words = run_words(path, hosts, cases=cases, inject=inject, overrides=self.overrides)
        self.start_run(words)

    async def _launch(self, words: tuple[str, ...], where: Path) -> None:
        """Start a run and watch it as soon as it has a folder; say why where it gets none."""
        from spbench.engine import background

        home = self.options.home
        environ = self.options.environ
        try:
            launched = await asyncio.to_thread(background.start, words, home, environ, where)
            self.watch_run(await _folder_of(launched), show=False)
        except SpbenchError as error:
            self._app.notify(
                str(error), title="not started", severity="error", timeout=15, markup=False
            )
        finally:
            self.starting_since = None


async def _folder_of(launched: Launched) -> RunFolder:
    while True:
        ended = launched.ended() is not None
        folder = await asyncio.to_thread(launched.folder)
        if folder is not None:
            return folder
        if ended:
            raise FailedRunError(launched.complaint() or "the run ended before it had begun")
        await asyncio.sleep(FOLDER_POLL_INTERVAL)
