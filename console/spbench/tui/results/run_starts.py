"""Runs that are started again, watched or replayed from the list of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary, read_summary
from spbench.tui.dialogs import LaunchesAgainDialog
from spbench.tui.page import Page, find_planted_faults
from spbench.tui.results.compared_sides import Repetition
from spbench.tui.results.library import RunLibrary
from spbench.tui.results.runs_pane import RunsPane
from spbench.tui.results.views import View
from spbench.tui.results.views_pane import ViewsPane
from spbench.tui.start_queue import POLL_INTERVAL
from spbench_core.events.statuses import RunStatus


class RunStarts:
    """Starts runs again, and shows them on the Run page.

    Args:
        page: The page with the runs.
        views: The views of the run under the cursor.
        library: The recorded runs.
    """

    def __init__(self, page: Page, views: ViewsPane, library: RunLibrary) -> None:
        self._page = page
        self._library = library
        self._views = views

    async def repeat(self, run: RunSummary, view: View) -> None:
        """Run sides of the comparison again, or the run if another view is shown.

        A question comes first only if there is a choice, of launches or faults.
        """
        if run.status == RunStatus.RUNNING:
            self._warn(explain_running("R"))
            return
        planned = self._views.plan_repetitions(view, run)
        first = planned[0]
        has_faults = bool(await asyncio.to_thread(find_planted_faults, first.folder))
        with_faults: bool | None = True
        if first.launches is None or has_faults:
            question = _make_question(planned, first.launches)
            with_faults = await self._page.ask_again(
                first.folder, question, "Run again", is_plain=True
            )
        else:
            planned = await self._choose_launches(planned, first.launches)
        if not planned or with_faults is None:
            return
        first, *later = planned
        if await self._page.start_again(first.folder, first.launches, with_faults=with_faults):
            self._await(planned)
            self._page.context.compared_side = first.other
            for repetition in later:
                await self._start_after(repetition)

    async def _choose_launches(self, planned: list[Repetition], launches: int) -> list[Repetition]:
        """Ask whether runs get more launches; return the runs to start, none after a no."""
        question = f"{_make_question(planned)} A comparison needs {launches} launches of each case."
        dialog = LaunchesAgainDialog(question, launches)
        has_more = await self._page.app.push_screen_wait(dialog)
        if dialog.chose_third:
            return [replace(repetition, launches=None) for repetition in planned]
        return planned if has_more else []

    def _await(self, repetitions: Sequence[Repetition]) -> None:
        self._page.query_one(RunsPane).await_runs(repetitions)

    async def _start_after(self, repetition: Repetition) -> None:
        """Start a run again as soon as the one that was started before has ended."""
        folder = await self._find_started()
        queue = self._page.context.start_queue
        if folder is not None and not await queue.wait(f"{repetition.folder.id} again"):
            self._await(())
            return
        if folder is None or not await asyncio.to_thread(_has_completed, folder):
            self._await(())
            self._warn(f"{repetition.folder.id} was not run again: the run before it did not end")
            return
        is_shown = self._page.app.current_mode == "run"
        await self._page.start_again(repetition.folder, repetition.launches, show=is_shown)
        self._page.context.compared_side = folder.id

    async def _find_started(self) -> RunFolder | None:
        """Return the folder of the run that is being started; None if the start failed."""
        context = self._page.context
        while context.starting_since is not None:
            await asyncio.sleep(POLL_INTERVAL)
        if context.start_failure is not None or context.feed is None:
            return None
        return context.feed.folder

    async def rerun_failed(self, run: RunSummary) -> None:
        """Start a run of the failed cases of a run."""
        if run.status == RunStatus.RUNNING:
            self._warn(explain_running("F"))
        elif run.status == RunStatus.PASSED:
            self._page.app.notify(f"no case of {run.id} has failed", markup=False)
        else:
            with self._page.show_errors(run.id):
                recorded = await asyncio.to_thread(self._library.load, run.folder)
                statuses = {case.id: case.status for case in recorded.cases.values()}
                if any(status.is_worth_another_run for status in statuses.values()):
                    await self._page.rerun_failed_cases(run.folder, statuses)
                else:
                    self._page.app.notify(f"no case of {run.id} has failed", markup=False)

    def watch(self, selected: RunSummary | None, runs: Sequence[RunSummary]) -> None:
        """Watch the run under the cursor if it is running, or else the newest running run."""
        running = [run for run in runs if run.status == RunStatus.RUNNING]
        if not running:
            self._warn("no run is running")
            return
        run = selected if selected is not None and selected in running else running[0]
        if run is not selected:
            self._page.app.notify(
                f"the selected run has ended; this is {run.id}, the newest that is running",
                markup=False,
            )
        self._page.context.watch_run(run.folder)

    def replay(self, run: RunSummary) -> None:
        """Replay a run in real time."""
        if run.status == RunStatus.RUNNING:
            self._warn(explain_running("p"))
        else:
            self._page.context.replay_run(run.folder, 1.0)

    def _warn(self, message: str) -> None:
        self._page.app.notify(message, severity="warning")


def explain_running(key: str) -> str:
    """Return why a key has no effect on a run that is still running."""
    return f"the selected run is still running; {key} works when it has ended"


def _make_question(planned: Sequence[Repetition], launches: int | None = None) -> str:
    """Return the question before runs are started again, one after the other."""
    first, *later = planned
    names = "".join(f", and then {_name_run(repetition)}," for repetition in later)
    with_launches = "" if launches is None else f" with {launches} launches of each case"
    new_runs = "new runs" if later else "a new run"
    return f"Start {_name_run(first)}{names} again{with_launches} as {new_runs}?"


def _name_run(repetition: Repetition) -> str:
    """Return ``run a (20260101-120000-halo)``, or ``run 20260101-120000-halo``."""
    id_ = repetition.folder.id
    return f"run {repetition.side} ({id_})" if repetition.side else f"run {id_}"


def _has_completed(folder: RunFolder) -> bool:
    """Return whether a run that has ended ran all its cases."""
    return read_summary(folder).status not in (RunStatus.CANCELLED, RunStatus.UNFINISHED)
