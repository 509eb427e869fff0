"""The Results page: recorded runs at the left, their results at the right."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.worker import Worker

from spbench.record.runs.history import RunSummary
from spbench.record.runs.playback import find_demo_run
from spbench.report.previous_times import list_earlier_runs
from spbench.tui.context import ConsoleContext
from spbench.tui.page import Page
from spbench.tui.results.baseline_dialogs import BaselineDialogs
from spbench.tui.results.bindings import (
    DEMO_STAYS,
    FAILURE_ACTIONS,
    FOOTER,
    HOME_ACTIONS,
    MODIFYING_ACTIONS,
    RESULTS_BINDINGS,
    is_allowed,
)
from spbench.tui.results.case_screen import CaseScreen
from spbench.tui.results.export import export_shown
from spbench.tui.results.library import CaseCounter, RunLibrary
from spbench.tui.results.run_changes import RunChanges
from spbench.tui.results.run_starts import RunStarts
from spbench.tui.results.runs_pane import RunsPane
from spbench.tui.results.view_loader import ViewLoader, ViewRequest, select_history
from spbench.tui.results.views import View, ViewTab
from spbench.tui.results.views_pane import ViewsPane
from spbench.tui.widgets.line_table import LineTable
from spbench_core.events.statuses import RunStatus

WIDE_WIDTH = 110
"""Columns from which the runs and their results are next to each other."""
TALL_HEIGHT = 40
"""Lines from which the panes are higher."""
_CASE_VIEWS = (View.TIMES, View.RUNS, View.PARAMETER)
"""The views of one case, which change with the cursor of the cases."""
_COMPARING_VIEWS = (View.COMPARE, View.TIMES, View.PARAMETER)
"""The views of two runs."""
_WIDTHS: list[tuple[int, str]] | None = [(0, "-narrow"), (WIDE_WIDTH, "-side-by-side")]
_HEIGHTS: list[tuple[int, str]] | None = [(0, "-short"), (TALL_HEIGHT, "-tall")]


class ResultsPage(Page):
    """Runs with a filter, the cases of a run, comparisons, plots and export."""

    NAME = "results"
    HELP = """\
Recorded runs and what they measured. Tab goes from the runs to the view at the right, v to the
next view: the cases of the run under the cursor, two runs side by side, the times of a case in
both, a metric over runs, a metric over a swept parameter."""
    MODIFYING_ACTIONS = MODIFYING_ACTIONS
    AUTO_FOCUS = "#runs"
    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS
    FOOTER = FOOTER
    BINDINGS: ClassVar[list[BindingType]] = RESULTS_BINDINGS
    DEFAULT_CSS = """
    ResultsPage #body { height: 1fr; layout: horizontal; }
    ResultsPage.-narrow #body { layout: vertical; }
    ResultsPage.-narrow RunsPane { width: 100%; height: 8; }
    ResultsPage.-narrow.-tall RunsPane { height: 18; }
    ResultsPage.-narrow ViewsPane { width: 100%; height: 1fr; }
    ResultsPage.-narrow.-short .-comparing RunsPane { height: 6; }
    ResultsPage.-narrow.-short .-comparing #details { display: none; }
    ResultsPage.-tall #details { max-height: 8; }
    ResultsPage.-tall.-side-by-side #details { height: 1fr; max-height: 1fr; margin-top: 1; }
    ResultsPage.-tall #compared-runs { max-height: 8; }
    ResultsPage.-tall.-side-by-side #notes { max-height: 16; }
    ResultsPage.-tall.-side-by-side .-with-chart #notes { max-height: 25%; margin-top: 1; }
    ResultsPage.-tall CompareView #notes:focus { max-height: 60%; }
    ResultsPage.-short PlotView VerticalScroll { max-height: 4; }
    """

    poll_seconds = 2.0
    """Time between two reads of the folder of the runs."""
    load_delay_seconds = 0.04
    """Time that the cursor must stay on a run before it is loaded."""

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._library = RunLibrary(context.options.home, readonly=context.readonly)
        self._case_counter = CaseCounter(self._library)
        self._runs: list[RunSummary] = []
        self._view = View.CASES
        self._poll_worker: Worker[None] | None = None
        self._polled_at = -math.inf
        self._views = ViewsPane()
        self._loader = ViewLoader(self._views, self._library)
        self._baseline: str | None = None
        self._baselines = BaselineDialogs(self, self._library)
        self._starts = RunStarts(self, self._views, self._library)
        self._changes = RunChanges(self, context.options.home, self._poll_now)

    def compose_body(self) -> ComposeResult:
        """Yield the runs and the views."""
        with Container(id="body"):
            yield RunsPane(self._library)
            yield self._views

    @property
    def _pane(self) -> RunsPane:
        return self.query_one(RunsPane)

    def refresh_page(self) -> None:
        """Read the folder of the runs periodically."""
        is_polling = self._poll_worker is not None and not self._poll_worker.is_finished
        is_due = time.monotonic() - self._polled_at >= self.poll_seconds
        if not is_polling and (is_due or self.context.run_to_compare is not None):
            self._poll_worker = self.run_worker(self._poll, group="look")

    async def _poll(self) -> None:
        feed = self.context.feed
        if feed is not None and feed.folder == find_demo_run():
            self._library.show_demo()
        runs = await asyncio.to_thread(self._library.summaries)
        baselines = await asyncio.to_thread(self._library.name_baselines)
        self._polled_at = time.monotonic()
        has_running = any(run.status == RunStatus.RUNNING for run in runs)
        is_changed = runs != self._runs or baselines != self._pane.baselines
        if is_changed or has_running or not runs:
            self._runs = runs
            self._pane.show_runs(runs, baselines, feed.folder.id if feed is not None else None)
        self._compare_requested_run()
        other_may_be_deleted = is_changed and self._view in (View.COMPARE, View.TIMES)
        if other_may_be_deleted or self._loader.needs(self._find_shown_run()):
            self._reload()
        table = self._pane.table
        await self._case_counter.count(self._pane.shown, table.visible_keys, self._pane.update_rows)

    def _compare_requested_run(self) -> None:
        """Compare the run that the Run page wants to compare."""
        run_id = self.context.run_to_compare
        self.context.run_to_compare = None
        if run_id is None:
            return
        if all(run.id != run_id for run in self._runs):
            self.notify(f"{run_id} is not among the runs here", severity="warning", markup=False)
            return
        feed = self.context.feed
        compared_side = None if feed is None else feed.compared_side
        if compared_side is None:
            self._baseline = None
        self._pane.compare_run(run_id, compared_side)
        self._show(View.COMPARE)

    def on_runs_pane_filter_changed(self) -> None:
        """Plot over the runs that match the filter."""
        self._reload()

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the run under the cursor, or plot the case under it."""
        if event.table is self._pane.table:
            self._pane.show_details(None)
        if event.table is self._pane.table or self._view in _CASE_VIEWS:
            self._reload()

    def on_line_table_row_selected(self, event: LineTable.RowSelected) -> None:
        """Open the run, or the results of the case."""
        if event.table is self._pane.table:
            self.action_open()
            return
        case = self._views.find_case(event)
        if case is not None:
            self.app.push_screen(CaseScreen(case))

    @work(exclusive=True, group="fill")
    async def _reload(self) -> None:
        """Load and show the view, unless the cursor moves on before."""
        await asyncio.sleep(self.load_delay_seconds)
        run = self._find_shown_run()
        await self._loader.load(None if run is None else self._build_request(run))
        if self._loader.lacks_common_case and self._pane.drop_own_mark():
            self._reload()  # with another run a
            return
        if run is not None:
            self._pane.show_details(self._views.cases.run)
            self._pane.update_rows()
        self._pane.show_sides(self._loader.sides)

    def _find_shown_run(self) -> RunSummary | None:
        """Return the run of the view: run b, or the one under the cursor."""
        sides = self._pane.sides
        if len(sides) > 1 and self._view in _COMPARING_VIEWS and self._baseline is None:
            return next((run for run in self._runs if run.id == sides[1]), None)
        return self._pane.selected_run()

    def _build_request(self, run: RunSummary) -> ViewRequest:
        pane = self._pane
        marked = next((other for other in self._runs if other.id in pane.sides[:1]), None)
        history = select_history(pane.shown, run.suite)
        origin = pane.describe_origin()
        return ViewRequest(
            *(self._view, run, self._runs, pane.marks, marked, history, self._baseline, origin)
        )

    def _show(self, view: View) -> None:
        self._view = view
        self.query_one("#body").set_class(view is not View.CASES, "-comparing")
        self._views.show_view(view)
        self._reload()

    def on_view_tab_clicked(self, event: ViewTab.Clicked) -> None:
        """Show the view."""
        self._show(event.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Bind F to the failed cases of the run, or else to the cancelled ones."""
        if action in FAILURE_ACTIONS and self.is_mounted and self.offers("rest"):
            return action == "rest" and super().check_action(action, parameters)
        if action == "rest":
            return False
        return super().check_action(action, parameters)

    def offers(self, action: str) -> bool:
        """Return whether the run under the cursor and the view allow an action."""
        run = self._pane.selected_run()
        if action == "remove_start":
            return bool(self.context.start_queue.waiting)
        if action == "attach":
            return any(other.status == RunStatus.RUNNING for other in self._runs)
        if run is None:
            return action == "filter"
        if self._library.is_demo(run) and action in HOME_ACTIONS:
            return False
        if action == "compare":
            return bool(self._pane.marked or list_earlier_runs(self._runs, run))
        if action == "all_metrics":
            return self._view is View.COMPARE
        if action == "repeat":
            return run.status != RunStatus.RUNNING
        return is_allowed(action, run)

    def find_key_title(self, action: str) -> str | None:
        """Name the side of the comparison that R runs again."""
        return self._views.name_repetition(self._view) if action == "repeat" else None

    def describe_location(self) -> tuple[str, ...]:
        """Return the run under the cursor, and the case if the cases are shown."""
        run = self._pane.selected_run()
        case = self._views.cases.table.cursor_key if self._view is View.CASES else None
        return (run.id if run is not None else "", "" if case is None else str(case))

    def action_view(self) -> None:
        """Show the next view."""
        self._show(self._view.next_view())

    def action_compare(self) -> None:
        """Show the comparison of two runs."""
        self._baseline = None
        self._show(View.COMPARE)

    def action_all_metrics(self) -> None:
        """Compare all metrics, or again the times only."""
        self._views.compare.toggle_metrics()
        self._show(View.COMPARE)

    def action_repeat(self) -> None:
        """Run a side of the comparison again, or the run under the cursor."""
        self._change(partial(self._starts.repeat, view=self._view))

    def action_baseline(self) -> None:
        """Ask for a baseline, and compare the run with it."""
        self.start_action(self._choose_baseline)

    async def _choose_baseline(self) -> None:
        run = self._get_selected_run()
        name = await self._baselines.choose(run) if run else None
        if run is None or name is None:
            return
        self._baseline = name
        self._pane.clear_marks()
        other = await asyncio.to_thread(self._baselines.find_other_run, name, run, self._pane.shown)
        if other is not None:
            self._pane.table.move_to(other.id)
        self._show(View.COMPARE)

    def action_metric(self) -> None:
        """Plot the next metric, or the current one if no plot is shown."""
        if self._view in (View.RUNS, View.PARAMETER):
            self._views.plot.next_metric()
        else:
            self._show(View.RUNS)

    def action_parameter(self) -> None:
        """Plot over the next swept parameter, or the current one if no plot is shown."""
        if self._view is View.PARAMETER:
            self._views.plot.next_parameter()
        else:
            self._show(View.PARAMETER)

    def action_case(self, rows: int) -> None:
        """Go to another case of the run, after the last one to the first."""
        self._views.cases.move_case(rows)

    def _get_selected_run(self) -> RunSummary | None:
        run = self._pane.selected_run()
        if run is None:
            self.notify("no run is chosen", severity="warning")
        return run

    def action_mark(self) -> None:
        """Mark the run for a comparison, or remove the mark."""
        run = self._get_selected_run()
        if run:
            self._baseline = None
            self._pane.toggle_mark(run.id)
            self._reload()

    def action_filter(self) -> None:
        """Ask for a filter."""
        self._pane.open_filter()

    def action_open(self) -> None:
        """Show the run on the Run page; a running one is watched there."""
        run = self._get_selected_run()
        if run:
            self.context.watch_run(run.folder)

    def action_attach(self) -> None:
        """Watch the run under the cursor if it is running, or else the newest running run."""
        self._starts.watch(self._pane.selected_run(), self._runs)

    def action_remove_start(self) -> None:
        """Remove the start that waits for the end of a run."""
        if not self.context.start_queue.remove_next():
            self.notify("no start waits for the end of a run", timeout=3)

    def action_failed(self) -> None:
        """Start a run of the failed cases of the run under the cursor."""
        self._change(self._starts.rerun_failed)

    def action_rest(self) -> None:
        """Start a run of the cancelled cases of the run under the cursor."""
        self.action_failed()

    def action_replay(self) -> None:
        """Replay the run in real time."""
        run = self._get_selected_run()
        if run:
            self._starts.replay(run)

    def action_export(self) -> None:
        """Write the shown comparison, or the run under the cursor, to a file."""
        run = self._get_selected_run()
        if run:
            self.start_action(self._export, run)

    async def _export(self, run: RunSummary) -> None:
        with self.show_errors("not exported"):
            shown = self._views.get_shown(self._view, run)
            if shown is None:
                shown = await asyncio.to_thread(self._library.load, run.folder)
            await export_shown(self, shown)

    def action_note(self) -> None:
        """Edit the note of the run."""
        self._change(self._changes.edit_note)

    def action_pin(self) -> None:
        """Save a baseline of the run."""
        self._change(self._baselines.make)

    def action_delete(self) -> None:
        """Delete the run."""
        self._change(self._changes.remove)

    def action_prune(self) -> None:
        """Delete all but the newest runs."""
        self.start_action(self._changes.prune)

    def _change(self, change: Callable[[RunSummary], Awaitable[None]]) -> None:
        run = self._get_selected_run()
        if run and self._library.is_demo(run):
            self.notify(DEMO_STAYS, severity="warning")
        elif run:
            self.start_action(change, run)

    def _poll_now(self) -> None:
        """Read the folder of the runs now."""
        self._polled_at = -math.inf
        self.refresh_page()

    def action_copy(self) -> None:
        """Copy the run's id."""
        run = self._get_selected_run()
        if run:
            self.app.copy_to_clipboard(run.id)
            self.notify(f"copied {run.id}", markup=False)
