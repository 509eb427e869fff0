"""Reads in threads what a view shows, and gives it to the view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from spbench.errors import SpbenchError
from spbench.record.runs.history import RunSummary
from spbench.report.compare import compare
from spbench.report.recorded import RecordedRun
from spbench.tui.results.details import Details
from spbench.tui.results.library import Library
from spbench.tui.results.views import View

MOST_RUNS = 200
"""Runs over which a metric is plotted."""

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown.

    Attributes:
        run: The run under the cursor.
        other: The run that it is compared with, a, where there is one.
        history: The runs over which a metric is plotted, in any order.
    """

    view: View
    run: RunSummary
    other: RunSummary | None
    history: tuple[RunSummary, ...]


def of_suite(runs: Sequence[RunSummary], suite: str) -> tuple[RunSummary, ...]:
    """Return the runs of a suite over which a metric is plotted, the newest of them."""
    return tuple(run for run in runs if run.suite == suite)[:MOST_RUNS]


async def fill(details: Details, library: Library, wanted: Wanted) -> None:
    """Read what is wanted and show it; what cannot be read is told in its place."""
    try:
        run = await _aside(details, library.load, wanted.run.folder)
    except SpbenchError as error:
        details.show_nothing(str(error))
        return
    details.cases.show_run(run)
    if wanted.view is View.COMPARE:
        await _compare(details, library, run, wanted.other)
    elif wanted.view is View.RUNS:
        runs = await _read_all(details, library, wanted.history)
        details.plot.show_runs(runs, details.cases.chosen())
    elif wanted.view is View.PARAMETER:
        details.plot.show_parameter(run, details.cases.chosen())


async def _compare(
    details: Details, library: Library, run: RecordedRun, other: RunSummary | None
) -> None:
    if other is None or other.id == run.summary.id:
        details.compare.show_comparison(None)
        return
    try:
        a = await _aside(details, library.load, other.folder)
    except SpbenchError as error:
        details.compare.show_comparison(None, str(error))
        return
    details.compare.show_comparison(await _aside(details, compare, a, run))


async def _read_all(
    details: Details, library: Library, history: tuple[RunSummary, ...]
) -> list[RecordedRun]:
    """Read run after run; those that cannot be read are passed over."""
    runs = []
    for count, summary in enumerate(history, 1):
        details.show_reading(f"reading {count} of {len(history)} runs…")
        try:
            runs.append(await _aside(details, library.load, summary.folder))
        except SpbenchError:
            continue
    return runs


async def _aside(
    details: Details,
    function: Callable[_Given, _Answer],
    *given: _Given.args,
    **named: _Given.kwargs,
) -> _Answer:
    """Call a function in a thread; what comes back once the console closes finds no view."""
    answer = await asyncio.to_thread(function, *given, **named)
    if not details.app.is_running:
        raise asyncio.CancelledError
    return answer
