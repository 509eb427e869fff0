"""The Run page: the watched run, live, ended or replayed."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Input, Static

from spbench.engine import background
from spbench.errors import SpbenchError
from spbench.record.case_state import CaseState
from spbench.record.runs.folder import RunFolder
from spbench.report.previous_times import list_previous_times, load_previous_run
from spbench.suites.shipped import resolve_shipped_path, resolve_suite_path
from spbench.tui.context import ConsoleContext
from spbench.tui.feed import Feed, ReplaySource
from spbench.tui.page import Page
from spbench.tui.panes import Pane
from spbench.tui.run.bindings import (
    FAILURE_ACTIONS,
    FOOTER,
    REPLAY_ACTIONS,
    RUN_ACTIONS,
    RUN_BINDINGS,
)
from spbench.tui.run.body import RunBody
from spbench.tui.run.case_computation import CaseComputation
from spbench.tui.run.details import build_case_details
from spbench.tui.run.findings import FindingKind
from spbench.tui.run.headline import Headline
from spbench.tui.run.panels import Panel
from spbench.tui.run.panes.overview import PreviousRows
from spbench.tui.run.presenter import RunPresenter
from spbench.tui.run.rank_details import build_rank_details
from spbench.tui.run.selection import RunSelection
from spbench.tui.run.start_note import StartNote
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.rank_strip import RankStrip

NO_RUN = """\
No run is watched.

1  compose a suite and run it
3  look at a recorded run, or play it again

A run that is started in a shell is found too: spbench run SUITE there, then open the console.
spbench tui --demo plays a recorded run and needs no MPI."""
NOT_STARTED = """\
No run is watched, since the last one could not be started.

1  change the suite or its cases, and start the run again
3  look at an earlier run"""
STARTING_TEXT = "… starting the run"


class RunPage(Page):
    """Cases, ranks, charts, findings and logs of the watched run.

    Attributes:
        shown_feed: The run that is shown; None before the first one.
        can_rerun: Whether the run can be started again.
    """

    NAME = "run"
    AUTO_FOCUS = ""  # the panes are hidden until there is a run; then the ranks get the focus
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
    FOOTER = FOOTER
    BINDINGS: ClassVar[list[BindingType]] = RUN_BINDINGS
    ALLOW_IN_MAXIMIZED_VIEW = "TabBar,Headline,Footer"
    DEFAULT_CSS = """
    RunPage #no-run { width: 100%; height: 1fr; content-align: center middle; }
    RunPage Headline, RunPage RunBody { display: none; }
    """

    def __init__(self, context: ConsoleContext) -> None:
        self._presenter: RunPresenter | None = None
        self.shown_feed: Feed | None = None
        self.can_rerun = False
        self._feed_with_previous: Feed | None = None
        self._bindings_state: object = None
        super().__init__(context)

    @property
    def presenter(self) -> RunPresenter:
        """The presenter of the shown run; there must be one."""
        assert self._presenter is not None
        return self._presenter

    @property
    def _selection(self) -> RunSelection:
        return self.presenter.selection

    def compose_body(self) -> ComposeResult:
        """Yield the text shown without a run, and the hidden panes of a run."""
        yield StartNote()
        yield Static(NO_RUN, id="no-run", markup=False)
        yield Headline()
        yield RunBody()

    def refresh_page(self) -> None:
        """Show the current state of the watched run."""
        self.query_one(StartNote).show(self.context.start_failure)
        feed = self.context.feed
        starting = self.context.starting_since
        if feed is None:
            self._close()
            text = NO_RUN if self.context.start_failure is None else NOT_STARTED
            if starting is not None:
                text = f"{STARTING_TEXT}: {describe_preparation(starting)}"
            self.query_one("#no-run", Static).update(text)
            return
        if self.shown_feed is not feed:
            self._open(feed)
        self.presenter.tick()
        if feed.state.run is not None and self._feed_with_previous is not feed:
            self._feed_with_previous = feed
            self.run_worker(self._load_previous(feed), group="previous", exclusive=True)
        if starting is not None:  # the panes still show the previous run
            self.query_one(Headline).show_start(describe_preparation(starting))
        else:
            self._show_headline()
        self._compute_times()
        if self.presenter.show_outcome():
            self.call_after_refresh(self.presenter.update_all)
        bindings_state = (
            self.context.is_run_active(),
            feed,
            feed.remote_host,
            self.can_rerun,
            self._offers("back"),
        )
        if bindings_state != self._bindings_state:
            self._bindings_state = bindings_state
            self.refresh_bindings()

    def _open(self, feed: Feed) -> None:
        """Show another run."""
        body = self.query_one(RunBody)
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

    def _close(self) -> None:
        """Hide the run that was watched before."""
        if self.shown_feed is None:
            return
        self.query_one("#no-run").display = True
        self.query_one(Headline).display = self.query_one(RunBody).display = False
        self.shown_feed = None
        self._presenter = None
        self.set_focus(None)  # keys of a hidden table have no effect
        self._bindings_state = None
        self.refresh_bindings()

    async def _find_suite(self, feed: Feed) -> None:
        """Offer to start the run again if its suite exists."""
        folder = self.context.options.folder
        self.can_rerun = await asyncio.to_thread(_has_suite, feed.folder, folder)

    def _show_headline(self) -> None:
        # Findings are in the headline only while they are not visible elsewhere.
        hidden = [] if self.query_one(RunBody).shows_findings else self.presenter.findings
        quiet_kinds = (FindingKind.SUMMARY, FindingKind.NOTE)
        worst = next((finding for finding in hidden if finding.kind not in quiet_kinds), None)
        self.query_one(Headline).show(self._selection.feed, self.presenter.paused, worst)

    def _compute_times(self) -> None:
        cases = self._selection.cases
        if cases.has_pending_times and not any(worker.group == "times" for worker in self.workers):
            self.run_worker(cases.compute_times(), group="times")
        if not any(worker.group == "figures" for worker in self.workers):
            self._compute_figures()

    def _compute_figures(self) -> None:
        """Compute the figures of the visible overviews, one case at a time."""
        selection = self._selection
        if self.presenter.shows_hosts_by_case:
            pending = selection.hosts.find_pending(selection.feed.state.cases.values())
            if pending is not None:
                self.run_worker(self._compute(selection.hosts, pending), group="figures")
                return
        if self.presenter.shows_parts and selection.case is not None:
            pending = selection.bars.find_pending([selection.case])
            if pending is not None:
                self.run_worker(self._compute(selection.bars, pending), group="figures")

    async def _compute(self, computation: CaseComputation[Any], case: CaseState) -> None:
        """Compute figures of a case, and show them."""
        await computation.compute(case)
        if self._presenter is not None:  # unless a start has ended the watch
            self._presenter.stay_active()

    async def _load_previous(self, feed: Feed) -> None:
        """Load the times of the previous run."""
        identities = [case.identity for case in feed.state.cases.values()]
        load = partial(
            load_previous_run,
            self.context.options.home,
            feed.folder,
            [identity.id for identity in identities],
            keep=not self.context.readonly,
        )
        try:
            run = await asyncio.to_thread(load)
        except SpbenchError:
            return  # the Results page shows the error
        if run is not None and self.shown_feed is feed:
            times = await asyncio.to_thread(list_previous_times, run, identities)
            rows = PreviousRows(times, self._selection.cases)
            if times:
                self.presenter.show_previous(rows, run.summary)

    def on_resize(self, event: Resize) -> None:
        """Lay out the panes for the new size."""
        if self._presenter is not None:
            self.query_one(RunBody).fit(event.size)
            self.call_after_refresh(self._presenter.update_all)

    def watch_maximized(self) -> None:
        """Update the heights of all panes when one fills the page, or no longer does."""
        if self._presenter is not None:
            self.call_after_refresh(self._presenter.update_all)

    def on_line_table_row_highlighted(self, message: LineTable.RowHighlighted) -> None:
        """Show the case, or the rank in charts and logs, that the user selected."""
        if self._presenter is None or not self._presenter.is_user_choice(message):
            return
        if message.table is self._presenter.cases:
            self._selection.choose(str(message.key))
            self._show_case()
        elif isinstance(message.key, int):
            self._selection.rank = message.key
            self._presenter.update_rank_soon()

    def _show_case(self) -> None:
        """Show the selected case with all its ranks, and end a pause."""
        self._selection.rank = None
        self.presenter.pause(False)
        self.presenter.update_rank_soon()

    def on_line_table_row_selected(self, message: LineTable.RowSelected) -> None:
        """Show the details of a case or a rank."""
        if message.table is self.presenter.cases:
            self.app.push_screen(build_case_details(self._selection.feed, str(message.key)))
        elif isinstance(message.key, int):
            self.app.push_screen(build_rank_details(self._selection, message.key))

    def on_rank_strip_rank_selected(self, message: RankStrip.RankSelected) -> None:
        """Select the rank in all panes."""
        self._choose_rank(message.rank)

    def _choose_rank(self, rank: int | None) -> None:
        self._selection.rank = rank
        if rank is not None:
            self.presenter.move_cursor(self.presenter.ranks, rank)
        self.presenter.update_rank_soon()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filter while the user types."""
        self.presenter.filter_ranks(message.value)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Focus the ranks that match."""
        self.presenter.ranks.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable actions that the shown run does not support."""
        return self._offers(action) and super().check_action(action, parameters)

    def _offers(self, action: str) -> bool:
        feed = self.shown_feed
        if feed is None:
            return action not in RUN_ACTIONS
        if action in REPLAY_ACTIONS:
            return isinstance(feed.source, ReplaySource)
        if action == "back":
            return self._selection.rank is not None or self.query_one(RunBody).is_filter_open
        if action == "cancel":
            return self.context.is_run_active() and feed.remote_host is None
        return action != "again" or self.can_rerun

    def offers(self, action: str) -> bool:
        """Return whether the status of the shown run allows an action."""
        feed = self.shown_feed
        if feed is None:
            return False
        run = feed.state.run
        has_ended = feed.ended or (run is not None and run.status is not None)
        if action == "cancel":
            return not has_ended
        if action == "again":
            return has_ended
        if action == "follow":
            return not has_ended and not self._selection.follows_running
        if action in FAILURE_ACTIONS:
            has_failed = any(case.status.is_bad for case in feed.state.cases.values())
            return has_failed and (has_ended or action == "next_failed")
        return True

    def describe_location(self) -> tuple[str, ...]:
        """Return the run, and the case and the rank that are shown."""
        if self.shown_feed is None or self._presenter is None:
            return ()
        case = self._selection.case
        rank = self._selection.rank
        names = (self.shown_feed.folder.id, case.id if case is not None else "")
        return (*names, "" if rank is None else f"rank {rank}")

    def action_pause(self) -> None:
        """Pause the display of the ranks, or continue."""
        self.presenter.pause(not self.presenter.paused)

    def action_filter(self) -> None:
        """Ask for the filter of the ranks."""
        self.query_one(RunBody).open_filter()

    def action_panel(self) -> None:
        """Show the next panel below the ranks."""
        self.query_one(RunBody).next_panel()
        self.call_after_refresh(self.presenter.update_all)

    def action_logs(self) -> None:
        """Show the logs below the ranks, or the first panel again."""
        self.query_one(RunBody).show_panel(Panel.LOGS)
        self.call_after_refresh(self.presenter.update_all)

    def action_cancel(self) -> None:
        """Cancel the run after a question, with the effect of Ctrl-C."""
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
        """Start a run with the same arguments after a question."""
        self.start_action(self._rerun, self._selection.feed.folder)

    async def _rerun(self, folder: RunFolder) -> None:
        note = " The one that is watched keeps running." if self.context.is_run_active() else ""
        question = f"Start {folder.id} again, as a new run?{note}"
        if await self.confirm(question, "Rerun", "Cancel"):
            try:
                args = await asyncio.to_thread(background.build_rerun_args, folder)
                cwd = await asyncio.to_thread(background.find_start_folder, folder)
                self.context.start_run(args, cwd)
            except SpbenchError as error:
                self.show_error(str(error), timeout=10)

    def action_failed(self) -> None:
        """Start a run of the failed cases of this one."""
        feed = self._selection.feed
        if feed.state.run is None or (feed.state.run.status is None and not feed.ended):
            self.notify("the run is still running; what failed can be run when it has ended")
        elif not any(case.status.is_bad for case in feed.state.cases.values()):
            self.notify("no case of this run has failed")
        else:
            self.start_action(self.rerun_failed_cases, feed.folder)

    def action_follow(self) -> None:
        """Show the running case from now on."""
        self._selection.follows_running = True
        self._show_case()
        self.presenter.update_all()

    def action_slowest(self) -> None:
        """Sort the slowest ranks first, or by number again, and focus the ranks."""
        self.presenter.ranks.focus()
        self.presenter.toggle_slowest_first()

    def action_metric(self) -> None:
        """Show the next metric in the charts."""
        self._selection.next_metric()
        self.presenter.update_rank_soon()

    def action_next_failed(self) -> None:
        """Select the next failed rank of the shown case, or of the next case with one."""
        rank = self._selection.next_failed_rank()
        if rank is None and (case := self._selection.next_case_with_failed_rank()):
            self._selection.choose(case)
            self.presenter.move_cursor(self.presenter.cases, case)
            self._show_case()
            self.presenter.update_all()
            rank = self._selection.next_failed_rank()
        if rank is None:
            self.notify(self._selection.explain_no_failed_rank(), timeout=3, markup=False)
        else:
            self.presenter.ranks.focus()
            self._choose_rank(rank)

    def action_copy(self) -> None:
        """Copy the findings if they have the focus, or else the row under the cursor."""
        text = self.presenter.get_text_to_copy(self.focused)
        if text:
            self.app.copy_to_clipboard(text)
            self.notify("copied", timeout=2)

    def action_zoom(self) -> None:
        """Let the focused pane fill the page, or show all panes again."""
        nodes = self.focused.ancestors_with_self if self.focused is not None else ()
        pane = next((node for node in nodes if isinstance(node, Pane)), None)
        if self.maximized is not None:
            self.minimize()
        elif pane is not None:
            # Set first, since a maximized pane ignores changes of its height.
            pane.styles.height = "1fr"
            self.maximize(pane, container=False)

    def action_play(self) -> None:
        """Pause a replay, or continue."""
        source = self._selection.feed.source
        if isinstance(source, ReplaySource):
            source.playing = not source.playing

    def action_speed(self, faster: bool) -> None:
        """Replay faster or slower."""
        source = self._selection.feed.source
        if isinstance(source, ReplaySource):
            source.step_speed(faster)

    def action_back(self) -> None:
        """Leave the filter, or else the selected rank."""
        if self.query_one(RunBody).close_filter():
            self.presenter.ranks.focus()
        else:
            self._choose_rank(None)


def describe_preparation(started_at: float) -> str:
    """Return the progress of a run without a folder, and the seconds since its start."""
    seconds = time.monotonic() - started_at
    return f"it reads its suite and asks hosts what they have, {seconds:.0f} s"


def _has_suite(folder: RunFolder, default_cwd: Path) -> bool:
    """Return whether the suite of a run exists, so that the run can be started again."""
    file = folder.read_json("run.json").get("file")
    if not isinstance(file, str):
        return False
    cwd = background.find_start_folder(folder) or default_cwd
    return resolve_shipped_path(resolve_suite_path(cwd, Path(file))).is_file()
