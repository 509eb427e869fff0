"""Load the runs of a view in threads."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from spbench.errors import SpbenchError
from spbench.record.runs.history import RunSummary
from spbench.record.runs.marks import RunMarks
from spbench.record.runs.playback import find_demo_run
from spbench.report.comparison.model import RunComparison
from spbench.report.previous_times import list_earlier_runs
from spbench.report.recorded import RecordedRun
from spbench.tui.results.case_times import BASELINE_TIMES, LoadedTimes
from spbench.tui.results.compared_sides import SideA
from spbench.tui.results.library import OwnBaselineError, RunLibrary
from spbench.tui.results.plot_series import find_swept_case
from spbench.tui.results.views import View
from spbench.tui.results.views_pane import ViewsPane
from spbench_core.events.statuses import RunStatus
from spbench_core.number_text import format_quantity

_RELOAD_FACTOR = 4
"""A running run is loaded again after the time for loading it times this factor."""
MAX_HISTORY = 200
"""Largest number of runs over which a metric is plotted."""
MAX_SHOWN_HISTORY = 30
"""Largest number of runs over which the times of a case are plotted next to its facts."""


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A view, and the runs that it shows.

    Attributes:
        run: The run of the view, which is run b of a comparison.
        runs: All runs, the newest first.
        marks: The marks of all runs.
        marked: Run a, if a run is marked; None compares with the previous run.
        history: The runs over which a metric is plotted, in any order.
        baseline: The baseline to compare with instead of another run.
        origin: The run that run b repeats, as text; empty unless R started it.
    """

    view: View
    run: RunSummary
    runs: Sequence[RunSummary]
    marks: RunMarks
    marked: RunSummary | None
    history: tuple[RunSummary, ...]
    baseline: str | None = None
    origin: str = ""

    def explain_no_comparison(self) -> str:
        """Return why there is no run a, with advice."""
        if self.run.folder == find_demo_run():
            return "The demo has only one run. Run a suite twice to compare its runs."
        suite = self.run.suite
        if list_earlier_runs(self.runs, self.run):
            reason = f"No earlier run of {suite} has a case of this run"
        else:
            reason = f"No earlier run of {suite}"
        advice = "mark two runs with Space to compare them"
        if self.marked is not None:
            advice = "mark another run with Space to compare it with this one"
        return f"{reason}; {advice}. R runs {suite} again."


def select_history(runs: Sequence[RunSummary], suite: str) -> tuple[RunSummary, ...]:
    """Return the newest runs of a suite, over which a metric is plotted."""
    return tuple(run for run in runs if run.suite == suite)[:MAX_HISTORY]


class ViewLoader:
    """Loads the runs of a view and shows them.

    Attributes:
        sides: The ids of the shown runs a and b, an empty one for a baseline; empty without two.
        lacks_common_case: Whether no case is in both compared runs.
    """

    def __init__(self, views: ViewsPane, library: RunLibrary) -> None:
        self._views = views
        self._library = library
        self.sides: tuple[str, ...] = ()
        self.lacks_common_case = False
        self._run: RunSummary | None = None
        self._loaded_at = -math.inf
        self._load_seconds = 0.0

    def needs(self, run: RunSummary | None) -> bool:
        """Return whether to load a run: another one, or a running one now and then."""
        is_due = time.monotonic() - self._loaded_at >= _RELOAD_FACTOR * self._load_seconds
        is_running = run is not None and run.status == RunStatus.RUNNING
        return run != self._run or (is_running and is_due)

    async def load(self, request: ViewRequest | None) -> None:
        """Load the runs of a request into the views; None shows that no run is chosen."""
        self._run = None if request is None else request.run
        self.sides = ()
        self.lacks_common_case = False
        if request is None:
            self._views.show_nothing("no run is chosen")
            return
        started = time.monotonic()
        self._views.show_progress("reading…")
        await self._load_view(request)
        self._views.show_progress("")
        self._loaded_at = time.monotonic()
        self._load_seconds = self._loaded_at - started

    async def _load_view(self, request: ViewRequest) -> None:
        """Load the runs of a request into the views, or show the error."""
        views = self._views
        try:
            run = await asyncio.to_thread(self._library.load, request.run.folder)
        except SpbenchError as error:
            views.show_nothing(str(error))
            return
        views.cases.show_run(run)
        if request.view is View.CASES:
            await self._show_case_times(run, request)
        elif request.view is View.COMPARE:
            await self._compare(run, request)
        elif request.view is View.TIMES:
            await self._show_times(run, request)
        elif request.view is View.RUNS:
            history = await self._load_history(request.history)
            cases = views.cases
            position = cases.describe_position()
            views.plot.show_runs(history, cases.selected_case(), request.marks, position)
        elif request.view is View.PARAMETER and find_swept_case(run) is None:
            views.show_content(View.CASES)
            views.cases.show_note("The suite sweeps no parameter: there is no chart over one.")
            await self._show_case_times(run, request)
        elif request.view is View.PARAMETER:
            views.show_content(View.PARAMETER)
            marked = await self._load_marked(request)
            views.plot.show_parameter(run, views.cases.selected_case(), marked)

    async def _load_marked(self, request: ViewRequest) -> RecordedRun | None:
        """Return the marked run; None without another run, or if it cannot be read."""
        if request.marked is None or request.marked.id == request.run.id:
            return None
        with suppress(SpbenchError):
            return await asyncio.to_thread(self._library.load, request.marked.folder)
        return None

    async def _show_case_times(self, run: RecordedRun, request: ViewRequest) -> None:
        cases = self._views.cases
        if cases.has_chart:
            cases.show_times(await self._load_times(run.summary))
        if cases.has_history_room:
            history = await self._load_history(request.history[:MAX_SHOWN_HISTORY])
            cases.show_history(history, request.marks)

    async def _compare(self, run: RecordedRun, request: ViewRequest) -> None:
        """Show the comparison, and then the times of both runs."""
        view = self._views.compare
        side = await self._find_side(run, request)
        try:
            comparison = None if side is None else await self._make_comparison(run, side)
        except SpbenchError as error:
            self._views.show_content(View.COMPARE)
            view.show_comparison(None, str(error))
            return
        self.lacks_common_case = comparison is not None and not comparison.cases
        self._views.show_content(View.CASES if self.lacks_common_case else View.COMPARE)
        if side is None or comparison is None:
            view.show_comparison(None, request.explain_no_comparison())
            return
        if self.lacks_common_case:
            view.show_comparison(None)
            self._views.cases.show_note(_explain_no_common_case(side))
            await self._show_case_times(run, request)
            return
        case = self._views.cases.selected_case()
        case_id = None if case is None else case.id
        view.show_comparison(comparison, case_id=case_id, side=side)
        view.show_times(*await self._load_both_times(run, side, request.runs))

    async def _show_times(self, run: RecordedRun, request: ViewRequest) -> None:
        """Show the times of the chosen case, in both runs if there are two."""
        view = self._views.times
        case = self._views.cases.selected_case()
        if case is None:
            view.show_nothing("this run has no case")
            return
        view.position = self._views.cases.describe_position()
        side = await self._find_side(run, request)
        try:
            comparison = None if side is None else await self._make_comparison(run, side)
        except SpbenchError as error:
            # The times of a run are complete without the baseline that was made of it.
            remark = "" if isinstance(error, OwnBaselineError) else str(error)
            view.show_run(case, await self._load_times(run.summary), remark)
            return
        if side is None or comparison is None:
            view.show_run(case, await self._load_times(run.summary))
        else:
            times = await self._load_both_times(run, side, request.runs)
            view.show_pair(comparison, case, times, side.remark)

    async def _find_side(self, run: RecordedRun, request: ViewRequest) -> SideA | None:
        """Return the run or the baseline to compare with; None without any."""
        side = await self._choose_side(run, request)
        if side is not None:
            self.sides = ("" if side.run is None else side.run.id, run.summary.id)
        return side

    async def _choose_side(self, run: RecordedRun, request: ViewRequest) -> SideA | None:
        if request.baseline is not None:
            return SideA(baseline=request.baseline)
        if request.marked is not None and request.marked.id != run.summary.id:
            return SideA(request.marked, origin=request.origin)
        return await asyncio.to_thread(self._library.choose_side, request.runs, run)

    async def _make_comparison(self, run: RecordedRun, side: SideA) -> RunComparison:
        """Return the comparison of a run with another one or a baseline.

        Raises:
            SpbenchError: The other run or the baseline cannot be read.
        """
        library = self._library
        if side.run is None:
            name = side.baseline or ""
            return await asyncio.to_thread(library.compare_with_baseline, name, run)
        a = await asyncio.to_thread(library.load, side.run.folder)
        return await asyncio.to_thread(library.compare, a, run)

    async def _load_both_times(
        self, run: RecordedRun, side: SideA, runs: Sequence[RunSummary]
    ) -> tuple[LoadedTimes, LoadedTimes]:
        """Return the times of runs a and b; for a baseline, those of its run."""
        other = side.run
        if side.baseline is not None:
            name = side.baseline
            other = await asyncio.to_thread(self._library.find_run_of_baseline, name, runs)
        times_a = BASELINE_TIMES if other is None else await self._load_times(other)
        return times_a, await self._load_times(run.summary)

    async def _load_times(self, summary: RunSummary) -> LoadedTimes:
        """Return the times of a run, or the reason why they cannot be read."""
        try:
            times = await asyncio.to_thread(self._library.load_times, summary.folder)
        except SpbenchError as error:
            return LoadedTimes({}, str(error))
        return LoadedTimes(times)

    async def _load_history(self, history: tuple[RunSummary, ...]) -> list[RecordedRun]:
        """Load the runs one after another, without those that cannot be read."""
        runs = []
        for count, summary in enumerate(history, 1):
            self._views.show_progress(f"reading {count} of {format_quantity(len(history), 'run')}…")
            try:
                runs.append(await asyncio.to_thread(self._library.load, summary.folder))
            except SpbenchError:
                continue
        return runs


def _explain_no_common_case(side: SideA) -> str:
    """Return why there is no comparison with a run or a baseline, and the next step."""
    if side.run is None:
        return f"No case is in the baseline {side.baseline} too: c compares with a run."
    return f"No case is in run a too, {side.run.id}: space on it removes its mark."
