"""Load the runs of a view in threads."""

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
from spbench_core.number_text import format_quantity

MAX_HISTORY = 200
"""Largest number of runs over which a metric is plotted."""

_Args = ParamSpec("_Args")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A view, and the runs that it shows.

    Attributes:
        run: The run under the cursor.
        other: The run to compare with (run a); None if there is none.
        history: The runs over which a metric is plotted, in any order.
        baseline: The baseline to compare with instead of another run.
    """

    view: View
    run: RunSummary
    other: RunSummary | None
    history: tuple[RunSummary, ...]
    baseline: str | None = None


def select_history(runs: Sequence[RunSummary], suite: str) -> tuple[RunSummary, ...]:
    """Return the newest runs of a suite, over which a metric is plotted."""
    return tuple(run for run in runs if run.suite == suite)[:MAX_HISTORY]


class ViewLoader:
    """Loads the runs of a view and shows them."""

    def __init__(self, views: ViewsPane, library: RunLibrary) -> None:
        self._views = views
        self._library = library

    async def load(self, request: ViewRequest) -> None:
        """Load the runs of a request into the views, or show the error."""
        views = self._views
        try:
            run = await self._run_in_thread(self._library.load, request.run.folder)
        except SpbenchError as error:
            views.show_nothing(str(error))
            return
        views.cases.show_run(run)
        if request.view is View.COMPARE:
            await self._compare(run, request)
        elif request.view is View.RUNS:
            views.plot.show_runs(
                await self._load_history(request.history), views.cases.selected_case()
            )
        elif request.view is View.PARAMETER:
            views.plot.show_parameter(run, views.cases.selected_case())

    async def _compare(self, run: RecordedRun, request: ViewRequest) -> None:
        view = self._views.compare
        library = self._library
        other = request.other
        try:
            if request.baseline is not None:
                comparison = await self._run_in_thread(
                    library.compare_with_baseline, request.baseline, run
                )
            elif other is None or other.id == run.summary.id:
                view.show_comparison(None)
                return
            else:
                a = await self._run_in_thread(library.load, other.folder)
                comparison = await self._run_in_thread(library.compare, a, run)
        except SpbenchError as error:
            view.show_comparison(None, str(error))
            return
        view.show_comparison(comparison)

    async def _load_history(self, history: tuple[RunSummary, ...]) -> list[RecordedRun]:
        """Load the runs one after another, without those that cannot be read."""
        runs = []
        for count, summary in enumerate(history, 1):
            self._views.show_progress(f"reading {count} of {format_quantity(len(history), 'run')}…")
            try:
                runs.append(await self._run_in_thread(self._library.load, summary.folder))
            except SpbenchError:
                continue
        return runs

    async def _run_in_thread(
        self,
        function: Callable[_Args, _Answer],
        *args: _Args.args,
        **kwargs: _Args.kwargs,
    ) -> _Answer:
        """Call a function in a thread; cancel the task if the console has closed by then."""
        answer = await asyncio.to_thread(function, *args, **kwargs)
        if not self._views.app.is_running:
            raise asyncio.CancelledError
        return answer
