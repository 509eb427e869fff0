"""Cancel a run after a question, and start it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spbench.engine import background
from spbench.errors import SpbenchError
from spbench.record.runs.folder import RunFolder
from spbench.tui.feed import Feed, ReplaySource
from spbench.tui.page import Page
from spbench.tui.start_queue import CancelBothDialog, StartDecision


class RunControl:
    """The actions of the Run page that start or end runs.

    Args:
        page: The page, which asks the questions and shows errors.
    """

    def __init__(self, page: Page) -> None:
        self._page = page

    def cancel(self, folder: RunFolder) -> None:
        """Cancel a run after a question, with the effect of Ctrl-C."""
        self._page.start_action(self._cancel, folder)

    async def _cancel(self, folder: RunFolder) -> None:
        question = f"Cancel the run {folder.id}? Its ranks will end; its measurements are kept."
        queue = self._page.context.start_queue
        if queue.waiting:
            question = f"{queue.waiting[0].request} waits for the run {folder.id}. Cancel which?"
            dialog = CancelBothDialog(question)
            is_confirmed = await self._page.app.push_screen_wait(dialog)
            if dialog.chose_third:
                queue.remove_next()
            while is_confirmed and queue.remove_next():
                pass
        else:
            is_confirmed = await self._page.confirm(question, "Cancel it", "Let it run")
        if is_confirmed:
            try:
                await asyncio.to_thread(background.cancel_run, folder)
                message = f"the ranks were asked to end: {folder.id}"
                self._page.app.notify(message, timeout=3, markup=False)
            except SpbenchError as error:
                self._page.show_error(str(error), timeout=10)

    def run_again(self, feed: Feed | None) -> None:
        """Start a run again: the one that could not be started, or the shown one.

        A question comes first only if there is something to decide.
        """
        context = self._page.context
        if context.failed_start is not None and context.start_failure is not None:
            request = context.start_failure.request
            self._page.start_action(self._start_again, context.failed_start, request)
        elif feed is None:
            self._page.notify("F5 starts a suite on the Suites page", timeout=4)
        else:
            self._page.start_action(self._page.rerun, feed.folder)

    async def _start_again(self, start: Callable[..., None], request: str) -> None:
        """Start a run that could not be started; ask first if another one is running."""
        admission = await self._page.context.start_queue.admit(request)
        if admission is not StartDecision.REJECTED:
            start(show=admission is StartDecision.AT_ONCE)

    def compare(self, feed: Feed) -> None:
        """Compare a run on the Results page; that of a plan with its prediction."""
        context = self._page.context
        if isinstance(feed.source, ReplaySource):
            self._page.notify("a replay is not compared; page 3 compares recorded runs")
            return
        context.run_to_compare = feed.folder.id
        context.show_page("plan" if feed.runs_suite(context.planned_suite) else "results")

    def rerun_failed(self, feed: Feed) -> None:
        """Start a run of the failed cases, or report why there is none."""
        if isinstance(feed.source, ReplaySource):
            self._page.notify("a replay starts no run; on the Results page, F runs what failed")
        elif feed.state.run is None or (feed.state.run.status is None and not feed.ended):
            self._page.notify("the run is still running; what failed can be run when it has ended")
        elif not any(case.status.is_worth_another_run for case in feed.state.cases.values()):
            self._page.notify(f"no case of {feed.folder.id} has failed", markup=False)
        else:
            statuses = {case.id: case.status for case in feed.state.cases.values()}
            self._page.start_action(self._page.rerun_failed_cases, feed.folder, statuses)
