"""State that all pages share, and the start of runs that they watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import FailedRunError, SpbenchError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench.tui.start_failure import StartFailure, explain_start_failure
from spbench.tui.start_queue import StartQueue

if TYPE_CHECKING:
    from textual.app import App

    from spbench.engine.background import BackgroundRun
    from spbench.record.runs.folder import RunFolder
    from spbench.tui.feed import EventSource, Feed

FOLDER_POLL_INTERVAL = 0.05
"""Time between two checks for the folder of a started run, in seconds."""
UNWATCHED_POLL_INTERVAL = 2.0
"""Time between two checks whether a run that is not watched still runs, in seconds."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Options of the console.

    Attributes:
        home: The folder of the runs.
        environ: The environment of started runs.
        folder: Absolute path of the folder for suites, hostfiles and the start of runs.
        suite: A suite to open.
        page: The page to show first.
        launch_choice: The hosts and the launcher chosen on the command line.
        recorded: A recorded run to replay.
        speed: Speed of the replay, or None for as fast as the events can be read.
        readonly: Whether nothing may be started, cancelled or written.
    """

    home: Path
    environ: Mapping[str, str]
    folder: Path = field(default_factory=Path.cwd)
    suite: Path | None = None
    page: str = "suites"
    launch_choice: LaunchChoice = DEFAULT_CHOICE
    recorded: RunFolder | None = None
    speed: float | None = 1.0
    readonly: bool = False


class ConsoleContext:
    """The launch settings, the watched run, and the start of runs.

    Args:
        options: The options of the console.
        app: The application, which shows messages and runs tasks.
        titles: Name and title of each page, in the order of their digits.
        refresh_hz: Largest refresh rate of a page, in Hz.

    Attributes:
        launch_choice: Hosts and launcher of runs started in the console.
        environment: Additional variables of the ranks, ``NAME=VALUE``.
        feed: The watched run; None before there is one, and after a failed start.
        unwatched_run: A running run that the user did not want to watch.
        starting_since: Since when a run is being started, in seconds of the monotonic clock. It is
            None as soon as the run has a folder.
        start_failure: The last start, if it failed.
        suite: A suite that the Suites page opens when it is shown next.
        planned_suite: The suite of the plan that was run last from the Plan page.
        rewritten_suites: Suites that other pages have written, for the Suites page to read again.
        compared_side: The other side of the comparison for which the last run was started.
        run_to_compare: The id of a run that the Results page, or for the run of a plan the Plan
            page, compares when it is shown next.
        start_queue: Lets starts begin one after the other.
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
        self.unwatched_run: RunFolder | None = None
        self.starting_since: float | None = None
        self.start_failure: StartFailure | None = None
        self.suite = options.suite
        self.planned_suite: Path | None = None
        self.rewritten_suites: set[Path] = set()
        self.compared_side: str | None = None
        self.run_to_compare: str | None = None
        self.start_queue = StartQueue(self, options.home, app)
        self._failed_settings: object = None
        self._run_before_start: Feed | None = None
        self._app = app
        self._start_again: Callable[..., None] | None = None
        self._starting_run: BackgroundRun | None = None
        self._is_start_cancelled = False
        self._follow_task: asyncio.Task[None] | None = None

    @property
    def readonly(self) -> bool:
        """Whether nothing may be started, cancelled or written."""
        return self.options.readonly

    @property
    def overrides(self) -> tuple[str, ...]:
        """The ``--set`` overrides of runs started in the console."""
        return tuple(f"launch.env.{variable}" for variable in self.environment)

    @property
    def launch_title(self) -> str:
        """A short text of the launch settings; empty if they are the defaults."""
        variable_names = ",".join(variable.partition("=")[0] for variable in self.environment)
        environment_title = f"env: {variable_names}" if variable_names else ""
        return "  ".join(filter(None, (self.launch_choice.title, environment_title)))

    @property
    def has_failed_start(self) -> bool:
        """Whether the last start failed, with the hosts and launcher of now."""
        settings = (self.launch_choice, self.environment)
        return self.start_failure is not None and settings == self._failed_settings

    def show_page(self, name: str) -> None:
        """Show a page."""
        if self._app.current_mode != name:
            self._app.switch_mode(name)

    def open_suite(self, path: Path) -> None:
        """Open a suite on the Suites page and show that page."""
        self.suite = path
        self.show_page("suites")

    def watch_run(
        self, folder: RunFolder, source: EventSource | None = None, show: bool = True
    ) -> None:
        """Watch a run from its folder or another source of its events, and show its page."""
        from spbench.engine.estimate import estimate_recorded
        from spbench.tui.feed import Feed, LiveSource

        self._leave_run()
        self.start_failure = None
        feed = self.feed = Feed(folder, source or LiveSource(folder))
        self._follow_task = asyncio.create_task(feed.follow())

        async def estimate() -> None:
            feed.estimate = await asyncio.to_thread(estimate_recorded, folder, self.options.environ)

        if source is None:  # a replay has no remaining time to estimate
            start: Callable[[], Awaitable[None]] = estimate
            self._app.run_worker(start, group="estimate", exclusive=True)
        if show:
            self.show_page("run")

    def _leave_run(self) -> None:
        """Stop watching a run."""
        self.feed = None
        if self._follow_task is not None:
            self._follow_task.cancel()
            self._follow_task = None

    def replay_run(self, folder: RunFolder, speed: float | None) -> None:
        """Replay a recorded run; ``speed`` 1 is real time, None as fast as possible."""
        from spbench.record.runs.follow import RecordedEvents
        from spbench.tui.feed import ReplaySource

        self.watch_run(folder, ReplaySource(RecordedEvents(folder.events), speed))

    def replay_demo(self) -> None:
        """Replay the demo run in real time."""
        from spbench.record.runs.playback import find_demo_run

        self.replay_run(find_demo_run(), 1.0)

    def is_run_active(self) -> bool:
        """Whether the watched run is live and has not ended."""
        from spbench.tui.feed import LiveSource

        feed = self.feed
        return feed is not None and not feed.ended and isinstance(feed.source, LiveSource)

    async def offer_to_watch(self) -> None:
        """Ask whether to watch the newest run that is still running, if there is one."""
        from spbench.engine import background
        from spbench.tui.dialogs import Confirm

        runs = await asyncio.to_thread(background.find_running, self.options.home)
        if not runs:
            return
        question = f"The run {runs[-1].id} is still running. Watch it?"
        if len(runs) > 1:
            question += f" ({len(runs)} runs are running; the Results page has them all)"
        offer = Confirm(question, "Watch", "Not now", enter_is_yes=True)
        if await self._app.push_screen_wait(offer):
            self.watch_run(runs[-1])
            return
        self.unwatched_run = runs[-1]
        while await asyncio.to_thread(runs[-1].is_alive):
            await asyncio.sleep(UNWATCHED_POLL_INTERVAL)
        self.unwatched_run = None

    @property
    def can_watch(self) -> bool:
        """Whether no run is watched, but `unwatched_run` is running."""
        return self.unwatched_run is not None and self.feed is None

    def watch_unwatched_run(self) -> None:
        """Watch the running run that the user did not want to watch."""
        if self.unwatched_run is not None:
            self.watch_run(self.unwatched_run)

    def start_run(
        self,
        args: Sequence[str],
        folder: Path | None = None,
        start_again: Callable[..., None] | None = None,
        show: bool = True,
    ) -> None:
        """Start a run in its own session and watch it; only one can be started at a time.

        Args:
            args: The arguments of ``spbench run``.
            folder: The working folder of the run. Default: that of the console.
            start_again: Starts it again if it fails. Default: with the same arguments.
            show: Whether to show the Run page.
        """
        if self.starting_since is not None:
            self._app.notify("not started: another run is just being started", severity="warning")
            return
        self.starting_since = time.monotonic()
        self._is_start_cancelled = False
        self.compared_side = None
        self.start_failure = None
        self._start_again = start_again or partial(self.start_run, args, folder)
        self._run_before_start = None
        if not self.is_run_active():
            self._run_before_start = self.feed
            self._leave_run()  # it must not look like the outcome of this start
        if show:
            self.show_page("run")
        self._app.run_worker(
            self._launch(tuple(args), folder or self.options.folder), group="launch"
        )

    @property
    def failed_start(self) -> Callable[..., None] | None:
        """Starts the run again that could not be started; None without one.

        A suite starts with the hosts, launcher and environment that are chosen then.
        """
        return None if self.start_failure is None else self._start_again

    def cancel_start(self) -> None:
        """End the run that is being started, like Ctrl-C does."""
        self._is_start_cancelled = True
        if self._starting_run is not None:
            self._starting_run.cancel()

    def start_failed_cases(
        self,
        folder: RunFolder,
        *,
        with_faults: bool = True,
        with_cancelled: bool = True,
        show: bool = True,
    ) -> None:
        """Start a run of the failed and cancelled cases of a run, in its folder."""
        from spbench.engine.background import WITHOUT_CANCELLED, WITHOUT_FAULTS, find_start_folder

        more = [] if with_faults else [WITHOUT_FAULTS]
        if not with_cancelled:
            more.append(WITHOUT_CANCELLED)
        self.start_run(("--failed", folder.id, *more), find_start_folder(folder), show=show)

    def start_suite(
        self,
        path: Path,
        cases: Sequence[str] = (),
        inject: Sequence[str] = (),
        *,
        oversubscribe: bool = False,
        overrides: Sequence[str] = (),
        show: bool = True,
    ) -> None:
        """Start a run of a suite, or of some of its cases, on the chosen hosts.

        ``oversubscribe`` allows more ranks and memory than this machine has. ``overrides`` such as
        ``iterations=80`` replace those of the console with the same key.
        """
        from spbench.engine.background import build_run_args
        from spbench.engine.plan import merge_overrides

        choice = self.launch_choice
        if oversubscribe:
            choice = replace(choice, oversubscribe=True)
        all_overrides = merge_overrides(self.overrides, overrides)
        start_again = partial(
            self.start_suite,
            path,
            cases,
            inject,
            oversubscribe=oversubscribe,
            overrides=overrides,
        )
        self.start_run(
            build_run_args(path, choice, cases=cases, inject=inject, overrides=all_overrides),
            start_again=start_again,
            show=show,
        )

    async def _launch(self, args: tuple[str, ...], folder: Path) -> None:
        """Start a run and watch it as soon as it has a folder; report why if it has none."""
        from spbench.engine import background

        home = self.options.home
        environ = self.options.environ
        try:
            background_run = self._starting_run = await asyncio.to_thread(
                background.start_run, args, home, environ, folder
            )
            if self._is_start_cancelled:
                background_run.cancel()
            self.watch_run(await _wait_for_folder(background_run), show=False)
            if self.feed is not None:
                self.feed.compared_side = self.compared_side
        except SpbenchError as error:
            if self._is_start_cancelled:
                self._app.notify("the start was cancelled; nothing was measured", timeout=6)
                self._show_run_before_start()
                return
            self._failed_settings = (self.launch_choice, self.environment)
            failure = self.start_failure = explain_start_failure(args, str(error))
            if self._app.current_mode != "run":  # the Run page shows the failure itself
                message = f"{failure.reason}\n→ {failure.remedy}"
                self._app.notify(
                    message, title="not started", severity="error", timeout=15, markup=False
                )
        finally:
            self.starting_since = None
            self._starting_run = None

    def _show_run_before_start(self) -> None:
        """Show the run again that was left for a start."""
        before = self._run_before_start
        if before is not None and self.feed is None:
            self.watch_run(before.folder, show=False)


async def _wait_for_folder(background_run: BackgroundRun) -> RunFolder:
    """Return the folder of a started run.

    Raises:
        FailedRunError: The process ended before it made a folder.
    """
    while True:
        # Checked first, since the process may make the folder and end between the two calls.
        ended = background_run.get_exit_status() is not None
        folder = await asyncio.to_thread(background_run.find_folder)
        if folder is not None:
            return folder
        if ended:
            raise FailedRunError(
                background_run.read_last_lines() or "the run ended before it had begun"
            )
        await asyncio.sleep(FOLDER_POLL_INTERVAL)
