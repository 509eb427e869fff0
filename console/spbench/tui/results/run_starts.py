"""Runs that are started again, watched or replayed from the list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.record.runs.history import RunSummary
from spbench.tui.page import Page
from spbench.tui.results.runs_pane import RunsPane
from spbench.tui.results.views import View
from spbench.tui.results.views_pane import ViewsPane
from spbench_core.events.statuses import RunStatus

_STILL_RUNNING = "this run is still running; o shows it"


class RunStarts:
    """Starts runs again, and shows them on the Run page.

    Args:
        page: The page with the runs.
        views: The views of the run under the cursor.
    """

    def __init__(self, page: Page, views: ViewsPane) -> None:
        self._page = page
        self._views = views

    async def repeat(self, run: RunSummary, view: View) -> None:
        """Run a side of the comparison again, or the run if another view is shown."""
        if run.status == RunStatus.RUNNING:
            self._warn(_STILL_RUNNING)
            return
        repetition = self._views.plan_repetition(view, run)
        if await self._page.rerun(repetition.folder, repetition.launches):
            self._page.query_one(RunsPane).await_run(repetition)

    async def rerun_failed(self, run: RunSummary) -> None:
        """Start a run of the failed cases of a run."""
        if run.status == RunStatus.RUNNING:
            self._warn(_STILL_RUNNING)
        elif run.status == RunStatus.PASSED:
            self._page.app.notify("no case of this run has failed")
        else:
            await self._page.rerun_failed_cases(run.folder)

    def watch(self, selected: RunSummary | None, runs: Sequence[RunSummary]) -> None:
        """Watch the run under the cursor if it is running, or else the newest running run."""
        running = [run for run in runs if run.status == RunStatus.RUNNING]
        if not running:
            self._warn("no run is running")
            return
        run = selected if selected is not None and selected in running else running[0]
        self._page.context.watch_run(run.folder)

    def replay(self, run: RunSummary) -> None:
        """Replay a run in real time."""
        if run.status == RunStatus.RUNNING:
            self._warn(_STILL_RUNNING)
        else:
            self._page.context.replay_run(run.folder, 1.0)

    def _warn(self, message: str) -> None:
        self._page.app.notify(message, severity="warning")
