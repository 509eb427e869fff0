"""Work of the Run page outside its event loop: files and figures of a run.

A file system that hangs, or a case with many ranks, must not stop the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spbench.engine import background
from spbench.errors import SpbenchError
from spbench.record.case_state import CaseState
from spbench.record.runs.folder import RunFolder
from spbench.report.previous_times import PreviousTime, list_previous_times, load_previous_run
from spbench.suites.shipped import resolve_shipped_path, resolve_suite_path
from spbench.tui.page import Page
from spbench.tui.run.case_computation import CaseComputation
from spbench.tui.run.panes.overview import PreviousPane, PreviousRows
from spbench.tui.run.presenter import RunPresenter

_REPORT_INTERVAL = 0.5
_MAX_REPORT_CHECKS = 240
"""Seconds between two checks for the report of a run that has ended, and their largest number.

The report is written after the last event, and that of a large run takes a while.
"""


class RunLoader:
    """The background work for one shown run; after `close`, it changes nothing.

    Attributes:
        can_rerun: Whether the suite of the run exists, so that it can be started again.
    """

    def __init__(self, page: Page, presenter: RunPresenter) -> None:
        self.can_rerun = False
        self._page = page
        self._presenter = presenter
        self._selection = presenter.selection
        self._feed = presenter.selection.feed
        self._is_closed = False
        self._has_asked_previous = False
        self._has_asked_report = False
        for pane in page.query(PreviousPane):
            pane.clear()  # it has the times for the run that was shown before
        self._start(self._find_suite, "suite")

    def _start(self, work: Callable[[], Awaitable[None]], group: str) -> None:
        # Not a coroutine object: Python warns if one is cancelled before it starts.
        self._page.run_worker(work, group=group, exclusive=True)

    def close(self) -> None:
        """Ignore files that are still being read, because another run is shown."""
        self._is_closed = True

    def update(self) -> None:
        """Start the work that has become due."""
        run = self._feed.state.run
        if run is not None and not self._has_asked_previous:
            self._has_asked_previous = True
            self._start(self._load_previous, "previous")
        elif run is None and self._feed.ended and not self._has_asked_previous:
            self._has_asked_previous = True
            self._show_no_previous()
        if run is not None and run.finished is not None and not self._has_asked_report:
            self._has_asked_report = True
            self._start(self._find_report, "report")
        cases = self._selection.cases
        if cases.has_pending_times and not self._is_working("times"):
            self._start(cases.compute_times, "times")
        if not self._is_working("figures"):
            self._compute_figures()

    def _is_working(self, group: str) -> bool:
        return any(worker.group == group for worker in self._page.workers)

    async def _find_suite(self) -> None:
        """Find out whether the run can be started again."""
        default_cwd = self._page.context.options.folder
        self.can_rerun = await asyncio.to_thread(_has_suite, self._feed.folder, default_cwd)

    async def _load_previous(self) -> None:
        """Load the times of the previous run."""
        context = self._page.context
        identities = [case.identity for case in self._feed.state.cases.values()]
        load = partial(
            load_previous_run,
            context.options.home,
            self._feed.folder,
            [identity.id for identity in identities],
            keep=not context.readonly,
        )
        try:
            previous = await asyncio.to_thread(load)
        except SpbenchError:
            previous = None  # the Results page shows the error
        times: Mapping[str, PreviousTime] = {}
        if previous is not None:
            times = await asyncio.to_thread(list_previous_times, previous.run, identities)
        if self._is_closed:
            return
        if previous is None or not times:
            self._show_no_previous()
            return
        rows = self._selection.previous = PreviousRows(times, self._selection.cases)
        for pane in self._page.query(PreviousPane):
            pane.show(rows, previous)
        self._presenter.update_all()

    def _show_no_previous(self) -> None:
        for pane in self._page.query(PreviousPane):
            pane.show_missing()

    async def _find_report(self) -> None:
        """Note where the report is, as soon as it is written."""
        for _ in range(_MAX_REPORT_CHECKS):
            note = await asyncio.to_thread(_describe_report, self._feed.folder)
            if self._is_closed:
                return
            if note is not None:
                self._selection.findings.report_note = note
                self._presenter.stay_active()
                return
            await asyncio.sleep(_REPORT_INTERVAL)

    def _compute_figures(self) -> None:
        """Compute the figures of the visible overviews, one case at a time."""
        selection = self._selection
        if self._presenter.overview.shows_hosts_by_case:
            pending = selection.hosts.find_pending(self._feed.state.cases.values())
            if pending is not None:
                self._start_computation(selection.hosts, pending)
                return
        if self._presenter.overview.shows_parts and selection.case is not None:
            pending = selection.bars.find_pending([selection.case])
            if pending is not None:
                self._start_computation(selection.bars, pending)

    def _start_computation(self, computation: CaseComputation[Any], case: CaseState) -> None:
        self._start(partial(self._compute, computation, case), "figures")

    async def _compute(self, computation: CaseComputation[Any], case: CaseState) -> None:
        """Compute figures of a case, and show them."""
        await computation.compute(case)
        self._presenter.stay_active()


def _has_suite(folder: RunFolder, default_cwd: Path) -> bool:
    """Return whether the suite of a run exists, so that the run can be started again."""
    file = folder.read_json("run.json").get("file")
    if not isinstance(file, str):
        return False
    cwd = background.find_start_folder(folder) or default_cwd
    return resolve_shipped_path(resolve_suite_path(cwd, Path(file))).is_file()


def _describe_report(folder: RunFolder) -> str | None:
    """Return the place of the report in one line; None without a report."""
    report = folder.report
    if not report.exists():
        return None
    cwd = Path.cwd()
    return f"report: {report.relative_to(cwd) if report.is_relative_to(cwd) else report}"
