"""Reads the runs whose rows are in view, so that each tells how many of its cases passed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable

from spbench.errors import SpbenchError
from spbench.record.runs.history import RunSummary
from spbench.tui.results.library import RunLibrary
from spbench_core.events.statuses import RunStatus

MAX_REPORT_BYTES = 1 << 20
"""The largest report that is read unasked: a larger one would hold up the keys."""


class CaseCounter:
    """Reads each run at most once, also one that cannot be read."""

    def __init__(self, library: RunLibrary) -> None:
        self._library = library
        self._tried: set[str] = set()

    async def count(
        self, runs: Iterable[RunSummary], in_view: Iterable[Hashable], show: Callable[[], None]
    ) -> None:
        """Read the ended runs in view whose counts are not known yet, one by one; show each."""
        keys = set(in_view)
        for run in runs:
            unknown = (
                run.verdict != RunStatus.RUNNING and not run.counts and run.id not in self._tried
            )
            if run.id in keys and unknown:
                self._tried.add(run.id)
                await asyncio.to_thread(self._read, run)
                show()

    def _read(self, run: RunSummary) -> None:
        try:
            if run.folder.report.stat().st_size <= MAX_REPORT_BYTES:
                self._library.load(run.folder)
        except (OSError, SpbenchError):
            return  # its row tells nothing, and the run itself tells why when it is looked at
