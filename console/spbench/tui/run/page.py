"""The Run page: the run that is watched, as it runs, as it ended, or played again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Input, Static

from spbench.engine import background
from spbench.errors import SpbenchError
from spbench.record.runs.folder import RunFolder
from spbench.suites.shipped import locate_suite_file, resolve_suite_path
from spbench.tui.context import ConsoleContext
from spbench.tui.feed import Feed, ReplaySource
from spbench.tui.page import Page
from spbench.tui.panes import Pane
from spbench.tui.run import replaying
from spbench.tui.run.body import Body
from spbench.tui.run.details import build_case_details, build_rank_details
from spbench.tui.run.headline import Headline
from spbench.tui.run.presenter import RunPresenter
from spbench.tui.run.selection import RunSelection
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip

NO_RUN = """\
No run is watched.

1  compose a suite and run it
3  look at a recorded run, or play it again

A run that is started in a shell is found too: `spbench run SUITE` there, then open the console.
`spbench tui --demo` plays a recorded run and needs no MPI."""
STARTING_TEXT = "… starting the run"
_OF_A_REPLAY = frozenset({"play", "speed"})
_OF_A_RUN = _OF_A_REPLAY | {
    *("pause", "filter", "panel", "cancel", "again", "failed", "follow", "slowest"),
    *("metric", "logs", "next_failed", "copy", "back"),
}
"""The actions that there is nothing to do for without a replay, or without a run."""


class RunPage(Page):
    """Cases and ranks, charts, words and logs of the watched run.

    Attributes:
        opened: The run that is shown; None before there is one.
        startable: Whether it can be started again.
    """

    NAME = "run"
    HELP = """\
The run that is watched: its cases, and the ranks of the case that runs.
Choose a case to see the ranks that it has left, f follows the running one again.
Choose a rank for its charts and logs, Escape goes back to all ranks. Tab and a click change panes.
time: the slowest rank in each iteration, then the median over iterations.
reference: simpler operations with the same work, in the same job. efficiency: reference / time.
checks: those that passed of those made, each on each rank.
…: of the iterations so far. ~ disturbed: ranks shared cores or other work had them (≈).
iters: iterations that a rank has done. last, recent: its newest times. bandwidth: its own.
own: the median without waits for other ranks. skew: own time and the shortest wait of the ranks
with the same work, over the same of the typical one.
The strip above the ranks has a piece for each rank, green to red by its skew."""
    MODIFYING_ACTIONS = frozenset({"cancel", "again", "failed"})
    BINDINGS: ClassVar[list[BindingType]] = [
        key(
            "run.pause",
            "space",
            "pause",
            "Pause",
            "Hold table and charts; counters go on",
            show=True,
        ),
        key(
            "run.filter", "slash", "filter", "Filter", "Show the ranks that match words", show=True
        ),
        key("run.panel", "v", "panel", "Panel", "The next panel below the ranks", show=True),
        key("run.cancel", "x", "cancel", "Cancel", "Cancel the run; asks first", show=True),
        key("run.again", "r", "again", "Rerun", "Start the same run again; asks first", show=True),
        key("run.failed", "F", "failed", "Run failed", "Run again what failed in this run"),
        key("run.follow", "f", "follow", "Follow", "Show the running case, from now on"),
        key("run.slowest", "o", "slowest", "Slowest", "Slowest ranks first, or by number again"),
        key("run.metric", "m", "metric", "Metric", "The next metric in the charts"),
        key("run.logs", "l", "logs", "Logs", "What the chosen rank has said, or all"),
        key(
            "run.next-failed",
            "n",
            "next_failed",
            "Next failed",
            "The next rank that failed, of any case",
        ),
        key("run.copy", "y", "copy", "Copy", "Copy the chosen rank's row, or the words"),
        key("run.zoom", "z", "zoom", "Zoom", "Let the focused pane fill the page, or not"),
        key("run.play", "p", "play", "Play", "Stop a replay, or go on"),
        key("run.faster", "plus,equals_sign", "speed(True)", "Faster", "Play a replay faster"),
        key("run.slower", "minus", "speed(False)", "Slower", "Play a replay slower"),
        key(
            "run.back",
            "escape",
            "back",
            "All ranks",
            "Leave filter, then the chosen rank",
            show=True,
        ),
    ]
    ALLOW_IN_MAXIMIZED_VIEW = "TabBar,Headline,Footer"
    DEFAULT_CSS = """
    RunPage #no-run { width: 100%; height: 1fr; content-align: center middle; }
    RunPage Headline, RunPage Body { display: none; }
    """

    def __init__(self, context: ConsoleContext) -> None:
        self._presenter: RunPresenter | None = None
        self.shown_feed: Feed | None = None
        self.can_rerun = False
        self._keys_for: object = None
        super().__init__(context)

    @property
    def presenter(self) -> RunPresenter:
        """The presenter of the run that is shown; there must be one."""
        assert self._presenter is not None
        return self._presenter

    @property
    def _selection(self) -> RunSelection:
        return self.presenter.selection

    def compose_body(self) -> ComposeResult:
        """Return what stands here while no run is watched, and the panes of one, not shown yet."""
        yield Static(NO_RUN, id="no-run", markup=False)
        yield Headline()
        yield Body()

    # Bringing up to date

    def refresh_page(self) -> None:
        """Take in what the feed has by now."""
        feed = self.context.feed
        starting = self.context.starting_since
        if feed is None:
            words = (
                f"{STARTING_TEXT}: {describe_start(starting)}" if starting is not None else NO_RUN
            )
            self.query_one("#no-run", Static).update(words)
            return
        if self.shown_feed is not feed:
            self._open(feed)
        self.presenter.tick()
        if (
            starting is not None
        ):  # what stands below is of the run before, and its verdict is no news
            self.query_one(Headline).show_start(describe_start(starting))
        else:
            self._show_headline()
        self._find_times()
        if self.presenter.show_outcome():
            self.call_after_refresh(self.presenter.update_all)
        keys_for = (
            self.context.is_run_active(),
            feed,
            feed.remote_host,
            self.can_rerun,
            self._offers("back"),
        )
        if keys_for != self._keys_for:
            self._keys_for = keys_for
            self.refresh_bindings()

    def _open(self, feed: Feed) -> None:
        """Show another run in place of what is there."""
        body = self.query_one(Body)
        self.query_one("#no-run").display = False
        self.query_one(Headline).display = body.display = True
        body.fit(self.size)
        body.close_filter()
        self.shown_feed = feed
        self._presenter = RunPresenter(body, RunSelection(feed))
        self._presenter.ranks.focus()
        self.call_after_refresh(self._presenter.update_all)
        self.can_rerun = False
        self.run_worker(self._find_suite(feed), group="suite", exclusive=True)

    async def _find_suite(self, feed: Feed) -> None:
        """Offer to start the run again where its suite is there."""
        here = self.context.options.folder
        self.can_rerun = await asyncio.to_thread(_startable, feed.folder, here)

    def _show_headline(self) -> None:
        body = self.query_one(Body)
        words = self.presenter.findings
        unseen = [] if body.shows_findings else words
        worst = next((word for word in unseen[:1] if word.kind not in ("noisy", "note")), None)
        noisy = next((word for word in unseen if word.kind == "noisy"), None)
        self.query_one(Headline).show(self._selection.feed, self.presenter.paused, worst, noisy)

    def _find_times(self) -> None:
        cases = self._selection.cases
        if cases.has_pending_times and not any(worker.group == "times" for worker in self.workers):
            self.run_worker(cases.compute_times(), group="times")

    def on_resize(self, event: Resize) -> None:
        """Lay the panes out for the new size."""
        if self._presenter is not None:
            self.query_one(Body).fit(event.size)
            self.call_after_refresh(self._presenter.update_all)

    def watch_maximized(self) -> None:
        """Give a pane that fills the page all its lines, and the others theirs again."""
        if self._presenter is not None:
            self.call_after_refresh(self._presenter.update_all)

    # What the reader chooses

    def on_line_table_row_highlighted(self, message: LineTable.RowHighlighted) -> None:
        """Show the case, or the rank in charts and logs, that the reader has chosen."""
        if self._presenter is None or not self._presenter.is_user_choice(message):
            return
        if message.table is self._presenter.cases:
            self._selection.choose(str(message.key))
            self._show_case()
        elif isinstance(message.key, int):
            self._selection.rank = message.key
            self._presenter.update_rank_soon()

    def _show_case(self) -> None:
        """Show the chosen case with all its ranks; what stood still goes on."""
        self._selection.rank = None
        self.presenter.pause(False)
        self.presenter.update_rank_soon()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Tell all that is known of a case or a rank."""
        if message.table is self.presenter.cases:
            self.app.push_screen(build_case_details(self._selection.feed, str(message.key)))
        elif isinstance(message.key, int):
            self.app.push_screen(build_rank_details(self._selection, message.key))

    def on_rank_strip_rank_selected(self, message: RankStrip.RankSelected) -> None:
        """Show the rank everywhere."""
        self._choose_rank(message.rank)

    def _choose_rank(self, rank: int | None) -> None:
        self._selection.rank = rank
        if rank is not None:
            self.presenter.move_cursor(self.presenter.ranks, rank)
        self.presenter.update_rank_soon()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filter as the words are typed."""
        self.presenter.filter(message.value)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Go back to the ranks that match."""
        self.presenter.ranks.focus()

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out what there is no run for, and what is only for runs of another kind."""
        return self._offers(action) and super().check_action(action, parameters)

    def _offers(self, action: str) -> bool:
        feed = self.shown_feed
        if feed is None:
            return action not in _OF_A_RUN
        if action in _OF_A_REPLAY:
            return isinstance(feed.source, ReplaySource)
        if action == "back":
            return self._selection.rank is not None or self.query_one(Body).filtering
        if action == "cancel":
            return self.context.is_run_active() and feed.remote_host is None
        return action != "again" or self.can_rerun

    def action_pause(self) -> None:
        """Hold what is shown of the ranks, or let it go on."""
        self.presenter.pause(not self.presenter.paused)

    def action_filter(self) -> None:
        """Ask for words that a rank's row must have."""
        self.query_one(Body).open_filter()

    def action_panel(self) -> None:
        """Show the next panel below the ranks."""
        self.query_one(Body).next_panel()
        self.call_after_refresh(self.presenter.update_all)

    def action_logs(self) -> None:
        """Show the logs below the ranks, or what was there before."""
        self.query_one(Body).show_panel("logs")
        self.call_after_refresh(self.presenter.update_all)

    def action_cancel(self) -> None:
        """Ask whether to cancel the run, and let it end as by Ctrl-C."""
        self.start_action(self._cancel, self._selection.feed.folder)

    async def _cancel(self, folder: RunFolder) -> None:
        question = f"Cancel the run {folder.id}? Its ranks are ended; what was measured is kept."
        if await self.confirm(question, "Cancel it", "Let it run"):
            try:
                await asyncio.to_thread(background.cancel_run, folder)
                self.app.notify("the run is being cancelled", timeout=4)
            except SpbenchError as error:
                self.show_error(str(error), timeout=10)

    def action_again(self) -> None:
        """Ask whether to start a run with the same words."""
        self.start_action(self._again, self._selection.feed.folder)

    async def _again(self, folder: RunFolder) -> None:
        more = " The one that is watched keeps running." if self.context.is_run_active() else ""
        question = f"Start {folder.id} again, as a new run?{more}"
        if await self.confirm(question, "Rerun", "Cancel"):
            try:
                words = await asyncio.to_thread(background.build_rerun_args, folder)
                where = await asyncio.to_thread(background.find_start_folder, folder)
                self.context.start_run(words, where)
            except SpbenchError as error:
                self.show_error(str(error), timeout=10)

    def action_failed(self) -> None:
        """Start a run of what failed in this one."""
        feed = self._selection.feed
        if feed.state.run is None or (feed.state.run.verdict is None and not feed.ended):
            self.notify("the run is still running; what failed can be run when it has ended")
        elif not any(case.status.is_bad for case in feed.state.cases.values()):
            self.notify("no case of this run has failed")
        else:
            self.start_action(self.rerun_failed_cases, feed.folder)

    def action_follow(self) -> None:
        """Show the running case, and each that comes after it."""
        self._selection.follows_running = True
        self._show_case()
        self.presenter.update_all()

    def action_slowest(self) -> None:
        """Sort by slowness, or by number again."""
        self.presenter.sort_by_slowness()

    def action_metric(self) -> None:
        """Show the next metric in the charts."""
        self._selection.next_metric()
        self.presenter.update_rank_soon()

    def action_next_failed(self) -> None:
        """Choose the next rank that failed; where none has in the shown case, in the next one."""
        rank = self._selection.next_failed_rank()
        if rank is None and (case := self._selection.next_case_with_failed_rank()):
            self._selection.choose(case)
            self.presenter.move_cursor(self.presenter.cases, case)
            self._show_case()
            self.presenter.update_all()
            rank = self._selection.next_failed_rank()
        if rank is None:
            self.notify(self._selection.why_no_failed_rank(), timeout=3, markup=False)
        else:
            self.presenter.ranks.focus()
            self._choose_rank(rank)

    def action_copy(self) -> None:
        """Copy the words where they have the focus, else the row under the cursor."""
        text = self.presenter.get_text_to_copy(self.focused)
        if text:
            self.app.copy_to_clipboard(text)
            self.notify("copied", timeout=2)

    def action_zoom(self) -> None:
        """Let the pane that has the focus fill the page, or give the others room again."""
        nodes = self.focused.ancestors_with_self if self.focused is not None else ()
        pane = next((node for node in nodes if isinstance(node, Pane)), None)
        if self.maximized is not None:
            self.minimize()
        elif pane is not None:
            # Set before: a page that one pane fills does not notice its new height.
            pane.styles.height = "1fr"
            self.maximize(pane, container=False)

    def action_play(self) -> None:
        """Stop a replay, or let it go on."""
        replaying.toggle_playback(self._selection.feed)

    def action_speed(self, faster: bool) -> None:
        """Play a replay faster or slower."""
        replaying.change_speed(self._selection.feed, faster)

    def action_back(self) -> None:
        """Leave the filter, and then the chosen rank."""
        if self.query_one(Body).close_filter():
            self.presenter.ranks.focus()
        else:
            self._choose_rank(None)


def describe_start(since: float) -> str:
    """Return what a run that was started waits for until it has a folder, and for how long."""
    elapsed = time.monotonic() - since
    return f"it reads its suite and asks hosts what they have, {elapsed:.0f} s"


def _startable(folder: RunFolder, here: Path) -> bool:
    """Whether the suite of a run is there, so that it can be started again; looks at files."""
    file = folder.read_json("run.json").get("file")
    if not isinstance(file, str):
        return False
    return locate_suite_file(
        resolve_suite_path(background.find_start_folder(folder) or here, Path(file))
    ).is_file()
