"""The Results page: recorded runs at the left, what they measured at the right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.worker import Worker

from spbench.errors import SpbenchError
from spbench.record.runs.folder import write_file
from spbench.record.runs.history import RunSummary
from spbench.report.comparison.model import RunComparison
from spbench.report.recorded import RecordedRun
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.context import ConsoleContext
from spbench.tui.page import Page
from spbench.tui.results.case_screen import CaseScreen
from spbench.tui.results.counting import CaseCounter
from spbench.tui.results.export_dialog import ExportDialog
from spbench.tui.results.exporting import describe_export, list_export_kinds, render_export
from spbench.tui.results.filling import ViewFiller, ViewRequest, select_history
from spbench.tui.results.library import RunLibrary, find_previous_run
from spbench.tui.results.run_changes import RunChanges
from spbench.tui.results.runs_pane import RunsPane
from spbench.tui.results.views import View, ViewTab
from spbench.tui.results.views_pane import ViewsPane
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.line_table import LineTable
from spbench_core.events.statuses import RunStatus

POLL_INTERVAL = 2.0
"""Seconds between two looks at the folder of the runs."""
_SETTLED = 0.04
"""Seconds that the cursor must stay on a run before it is read."""
_SHARE = 4
"""A run that goes on is read again after this many times as long as the reading took."""
WIDE_WIDTH = 110
"""Columns from which the runs and what they measured stand side by side."""
TALL_HEIGHT = 40
"""Lines from which there is room for more of each."""
_WIDTHS: list[tuple[int, str]] | None = [(0, "-narrow"), (WIDE_WIDTH, "-side-by-side")]
_HEIGHTS: list[tuple[int, str]] | None = [(0, "-short"), (TALL_HEIGHT, "-tall")]


class ResultsPage(Page):
    """Runs with a filter, one run's cases, two runs side by side, plots, export."""

    NAME = "results"
    HELP = """\
Recorded runs and what they measured. Tab goes from the runs to the view at the right, v to the
next view: the cases of the run under the cursor, two runs side by side, a metric over runs, a
metric over a swept parameter."""
    MODIFYING_ACTIONS = frozenset({"export", "note", "pin", "delete", "prune", "failed"})
    AUTO_FOCUS = "#runs"
    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        key("results.open", "o", "open", "Open", "Show the run on the Run page"),
        key("results.mark", "space", "mark", "Mark", "Mark the run to compare with", show=True),
        key("results.view", "v", "view", "View", "Show the next view", show=True),
        key("results.filter", "slash", "filter", "Filter", "Filter the runs", show=True),
        key("results.export", "e", "export", "Export", "Write what is shown to a file", show=True),
        key("results.compare", "c", "compare", "Compare", "Compare the marked run with this one"),
        key("results.all", "A", "all_metrics", "All metrics", "Compare all metrics, or the times"),
        key("results.baseline", "b", "baseline", "Baseline", "Compare with a baseline"),
        key("results.pin", "B", "pin", "Pin", "Make a baseline of the run"),
        key("results.note", "t", "note", "Note", "Write a note of the run, with #tags"),
        key("results.delete", "d,delete", "delete", "Delete", "Delete the run"),
        key("results.prune", "D", "prune", "Prune", "Delete all but the newest runs"),
        key("results.metric", "m", "metric", "Metric", "Plot the next metric"),
        key("results.parameter", "p", "parameter", "Parameter", "Plot over the next parameter"),
        key("results.next-case", "n", "case(1)", "Next case", "Show the next case"),
        key("results.last-case", "N", "case(-1)", "Last case", "Show the case before"),
        key("results.replay", "r", "replay", "Replay", "Play the recorded run again"),
        key("results.failed", "F", "failed", "Run failed", "Run again what failed in the run"),
        key("results.attach", "a", "attach", "Attach", "Watch a run that is still running"),
        key("results.copy", "y", "copy", "Copy id", "Copy the run's id"),
    ]
    DEFAULT_CSS = """
    ResultsPage #body { height: 1fr; layout: horizontal; }
    ResultsPage.-narrow #body { layout: vertical; }
    ResultsPage.-narrow RunsPane { width: 100%; height: 9; }
    ResultsPage.-narrow.-tall RunsPane { height: 18; }
    ResultsPage.-tall #both { max-height: 8; }
    ResultsPage.-tall #notes { max-height: 16; }
    ResultsPage.-narrow ViewsPane { width: 100%; height: 1fr; }
    """

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self._library = RunLibrary(context.options.home, readonly=context.readonly)
        self._counting = CaseCounter(self._library)
        self._runs: list[RunSummary] = []
        self._view = View.CASES
        self._looking: Worker[None] | None = None
        self._looked = self._filled_at = self._cost = -POLL_INTERVAL
        self._filled: RunSummary | None = None
        self._baseline: str | None = None
        self._changes = RunChanges(self, context.options.home, self._look_again)

    def compose_body(self) -> ComposeResult:
        """Return the runs and the views."""
        with Container(id="body"):
            yield RunsPane(self._library.format_passed, str(self._library.home))
            yield ViewsPane()

    @property
    def _pane(self) -> RunsPane:
        return self.query_one(RunsPane)

    @property
    def _views(self) -> ViewsPane:
        return self.query_one(ViewsPane)

    # The runs

    def refresh_page(self) -> None:
        """Look at the folder of the runs, every other second."""
        looking = self._looking is not None and not self._looking.is_finished
        if not looking and time.monotonic() - self._looked >= POLL_INTERVAL:
            self._looking = self.run_worker(self._look(), group="look")

    async def _look(self) -> None:
        runs = await asyncio.to_thread(self._library.summaries)
        self._looked = time.monotonic()
        if not self.app.is_running:
            return
        goes_on = any(run.verdict == RunStatus.RUNNING for run in runs)
        if runs != self._runs or goes_on or not runs:
            self._runs = runs
            self._pane.show_runs(runs)
        run = self._pane.selected_run()
        rested = time.monotonic() - self._filled_at >= _SHARE * self._cost
        if run != self._filled or (run and run.verdict == RunStatus.RUNNING and rested):
            self._fill()
        table = self._pane.table
        await self._counting.count(self._pane.shown, table.in_view, table.update_rows)

    def on_runs_pane_filter_changed(self) -> None:
        """Plot over the runs that the filter shows."""
        self._fill()

    def on_line_table_row_highlighted(self, event: LineTable.RowHighlighted) -> None:
        """Show the run under the cursor, or plot the case under it."""
        if event.table is self._pane.table:
            self._pane.show_exact_times()
        if event.table is self._pane.table or self._view in (View.RUNS, View.PARAMETER):
            self._fill()

    def on_line_table_row_selected(self, event: LineTable.RowSelected) -> None:
        """Open the run, or all of the case."""
        if event.table is self._pane.table:
            self.action_open()
            return
        case = self._views.find_case(event)
        if case is not None:
            self.app.push_screen(CaseScreen(case))

    # The views

    def _fill(self) -> None:
        # Not a coroutine: of one that is cancelled before it begins, Python complains.
        fill_view: Callable[[], Awaitable[None]] = self._fill_view
        self.run_worker(fill_view, group="fill", exclusive=True)

    async def _fill_view(self) -> None:
        """Show what is wanted now; a run that was passed by is not read."""
        await asyncio.sleep(_SETTLED)
        if not self.app.is_running:
            return
        run = self._pane.selected_run()
        views = self._views
        self._filled = run
        if run is None:
            views.show_nothing("no run is chosen")
            return
        began = time.monotonic()
        views.show_progress("reading…")
        await ViewFiller(views, self._library).fill(self._wanted(run))
        views.show_progress("")
        self._pane.table.update_rows()
        self._filled_at = time.monotonic()
        self._cost = self._filled_at - began

    def _wanted(self, run: RunSummary) -> ViewRequest:
        marked = next((other for other in self._runs if other.id == self._pane.marked), None)
        other = marked or find_previous_run(self._runs, run)
        history = select_history(self._pane.shown, run.suite)
        return ViewRequest(self._view, run, other, history, self._baseline)

    def _show(self, view: View) -> None:
        self._view = view
        self._views.show_view(view)
        self._fill()

    def on_view_tab_clicked(self, event: ViewTab.Clicked) -> None:
        """Show the view."""
        self._show(event.view)

    def action_view(self) -> None:
        """Show the next view."""
        self._show(self._view.next())

    def action_compare(self) -> None:
        """Show two runs side by side."""
        self._baseline = None
        self._show(View.COMPARE)

    def action_all_metrics(self) -> None:
        """Compare all metrics, or again the times only."""
        self._views.compare.toggle_metrics()
        self._show(View.COMPARE)

    def action_baseline(self) -> None:
        """Ask for a baseline, and show the run beside it."""
        self.start_action(self._choose_baseline)

    async def _choose_baseline(self) -> None:
        known = await asyncio.to_thread(self._library.baselines)
        if not known:
            self.notify("there is no baseline yet; B makes one of a run", severity="warning")
            return
        chooser = Chooser("Compare with", [Choice(name, of) for name, of in known])
        name = await self.app.push_screen_wait(chooser)
        if name is not None:
            self._baseline = name
            self._show(View.COMPARE)

    def action_metric(self) -> None:
        """Plot the next metric; the first time, plot one."""
        if self._view in (View.RUNS, View.PARAMETER):
            self._views.plot.next_metric()
        else:
            self._show(View.RUNS)

    def action_parameter(self) -> None:
        """Plot over the next swept parameter; the first time, over one."""
        if self._view is View.PARAMETER:
            self._views.plot.next_parameter()
        else:
            self._show(View.PARAMETER)

    def action_case(self, way: int) -> None:
        """Go to another case of the run."""
        self._views.cases.table.action_move(way)

    # What is done with a run

    def _chosen(self) -> RunSummary | None:
        run = self._pane.selected_run()
        if run is None:
            self.notify("no run is chosen", severity="warning")
        return run

    def action_mark(self) -> None:
        """Mark the run as a, or take its mark away."""
        run = self._chosen()
        if run:
            self._baseline = None
            self._pane.mark(None if run.id == self._pane.marked else run.id)
            self._fill()

    def action_filter(self) -> None:
        """Write a filter."""
        self._pane.open_filter()

    def action_open(self) -> None:
        """Show the run on the Run page; one that goes on is followed there."""
        run = self._chosen()
        if run:
            self.context.watch_run(run.folder)

    def action_attach(self) -> None:
        """Follow the run under the cursor if it goes on, else the newest that does."""
        going, run = (
            [run for run in self._runs if run.verdict == RunStatus.RUNNING],
            self._pane.selected_run(),
        )
        if going:
            self.context.watch_run((run if run in going else going[0]).folder)
        else:
            self.app.notify("no run is running", severity="warning")

    def action_failed(self) -> None:
        """Start a run of what failed in the run under the cursor."""
        run = self._chosen()
        if run is None:
            return
        if run.verdict == RunStatus.RUNNING:
            self.app.notify("this run is still running; o shows it", severity="warning")
        elif run.verdict == RunStatus.PASSED:
            self.app.notify("no case of this run has failed")
        else:
            self.start_action(self.rerun_failed_cases, run.folder)

    def action_replay(self) -> None:
        """Play the run again, as fast as it was."""
        run = self._chosen()
        if run and run.verdict == RunStatus.RUNNING:
            self.app.notify("this run is still running; o shows it", severity="warning")
        elif run:
            self.context.replay_run(run.folder, 1.0)

    def action_export(self) -> None:
        """Write the run, or the comparison where that is shown, to a file."""
        what = self._views.get_shown(self._view)
        if what:
            self.run_worker(self._export(what), group="export")
        else:
            self._chosen()

    async def _export(self, what: RecordedRun | RunComparison) -> None:
        """Ask for format and file, and write; a file that is there is replaced only after a yes."""
        name, stem = describe_export(what)
        dialog = ExportDialog(name, self.context.options.folder / stem, list_export_kinds(what))
        chosen = await self.app.push_screen_wait(dialog)
        if chosen is None or not await self.confirm_overwrite(chosen.path):
            return
        try:
            text = await asyncio.to_thread(render_export, what, chosen.kind)
            await asyncio.to_thread(write_file, chosen.path, text)
        except SpbenchError as error:
            title = "not exported"
            why = str(error)
            self.app.notify(why, title=title, severity="error", timeout=10, markup=False)
        else:
            self.app.notify(f"written to {chosen.path}", title="exported", markup=False)

    def action_note(self) -> None:
        """Write a note of the run."""
        self._change(self._changes.edit_note)

    def action_pin(self) -> None:
        """Make a baseline of the run."""
        self._change(self._changes.save_baseline)

    def action_delete(self) -> None:
        """Delete the run."""
        self._change(self._changes.remove)

    def action_prune(self) -> None:
        """Delete all but the newest runs."""
        self.start_action(self._changes.prune)

    def _change(self, change: Callable[[RunSummary], Awaitable[None]]) -> None:
        run = self._chosen()
        if run:
            self.start_action(change, run)

    def _look_again(self) -> None:
        """Look at the folder of the runs at once."""
        self._looked = -POLL_INTERVAL
        self.refresh_page()

    def action_copy(self) -> None:
        """Copy the run's id."""
        run = self._chosen()
        if run:
            self.app.copy_to_clipboard(run.id)
            self.notify(f"copied {run.id}", markup=False)
