"""Reads in threads what a view shows, and gives it to the view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from spbench.errors import SpbenchError
from spbench.record.runs.history import RunSummary
from spbench.report.recorded import RecordedRun
from spbench.tui.results.library import RunLibrary
from spbench.tui.results.views import View
from spbench.tui.results.views_pane import ViewsPane
from spbench_core.quantities import format_quantity

MAX_HISTORY = 200
"""Runs over which a metric is plotted."""

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A view, and the runs that it is to show.

    Attributes:
        run: The run under the cursor.
        other: The run that it is compared with, a, where there is one.
        history: The runs over which a metric is plotted, in any order.
        baseline: The baseline that it is compared with, in the place of another run.
    """

    view: View
    run: RunSummary
    other: RunSummary | None
    history: tuple[RunSummary, ...]
    baseline: str | None = None


def select_history(runs: Sequence[RunSummary], suite: str) -> tuple[RunSummary, ...]:
    """Return the runs of a suite over which a metric is plotted, the newest of them."""
    return tuple(run for run in runs if run.suite == suite)[:MAX_HISTORY]


class ViewFiller:
    """Reads what a view is to show, and gives it to the view."""

    def __init__(self, views: ViewsPane, library: RunLibrary) -> None:
        self._views = views
        self._library = library

    async def fill(self, wanted: ViewRequest) -> None:
        """Read what is wanted and show it; what cannot be read is told in its place."""
        views = self._views
        try:
            run = await self._aside(self._library.load, wanted.run.folder)
        except SpbenchError as error:
            views.show_nothing(str(error))
            return
        views.cases.show_run(run)
        if wanted.view is View.COMPARE:
            await self._compare(run, wanted)
        elif wanted.view is View.RUNS:
            views.plot.show_runs(await self._read_all(wanted.history), views.cases.selected_case())
        elif wanted.view is View.PARAMETER:
            views.plot.show_parameter(run, views.cases.selected_case())

    async def _compare(self, run: RecordedRun, wanted: ViewRequest) -> None:
        view = self._views.compare
        library = self._library
        other = wanted.other
        try:
            if wanted.baseline is not None:
                found = await self._aside(library.compare_with_baseline, wanted.baseline, run)
            elif other is None or other.id == run.summary.id:
                view.show_comparison(None)
                return
            else:
                a = await self._aside(library.load, other.folder)
                found = await self._aside(library.compare, a, run)
        except SpbenchError as error:
            view.show_comparison(None, str(error))
            return
        view.show_comparison(found)

    async def _read_all(self, history: tuple[RunSummary, ...]) -> list[RecordedRun]:
        """Read run after run; those that cannot be read are passed over."""
        runs = []
        for count, summary in enumerate(history, 1):
            self._views.show_progress(f"reading {count} of {format_quantity(len(history), 'run')}…")
            try:
                runs.append(await self._aside(self._library.load, summary.folder))
            except SpbenchError:
                continue
        return runs

    async def _aside(
        self,
        function: Callable[_Given, _Answer],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> _Answer:
        """Call a function in a thread; what comes back once the console closes finds no view."""
        answer = await asyncio.to_thread(function, *given, **named)
        if not self._views.app.is_running:
            raise asyncio.CancelledError
        return answer
