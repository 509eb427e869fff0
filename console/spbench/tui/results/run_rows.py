"""The runs as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from spbench.record.number_formatting import format_duration
from spbench.record.runs.history import RunSummary
from spbench.tui.cells import format_moment, status_cell
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import RunStatus

COLUMNS = (
    Column("mark", "", 1),
    Column("started", "started UTC", 11),
    Column("suite", "suite", 8, flexible=True),
    Column("verdict", "verdict", 12),
    Column("cases", "passed", 6, "right", rank=1),
    Column("duration", "took", 10, "right", rank=2),
    Column("host", "host", 10, rank=3),
    Column("id", "id", 44, rank=4),
)


class RunRows:
    """Rows of runs, the newest first.

    Args:
        passed: Says of a run's id how many of its cases passed, where that is known.
    """

    def __init__(self, passed: Callable[[str], str]) -> None:
        self._passed = passed
        self._runs: dict[Hashable, RunSummary] = {}
        self._now = 0.0
        self.marked: str | None = None

    def show(self, runs: Sequence[RunSummary], now: float) -> None:
        """Take other runs, as they are at a time in seconds since the epoch."""
        self._runs = {run.id: run for run in runs}
        self._now = now

    def keys(self) -> Sequence[Hashable]:
        """Return the runs' ids."""
        return list(self._runs)

    def version(self, key: Hashable) -> Hashable:
        """Return what changes when the run's cells do."""
        run = self._runs[key]
        return run.verdict, self._took(run), self._passed(run.id), run.id == self.marked

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the run's cells."""
        run = self._runs[key]
        return (
            TableCell("a" if run.id == self.marked else "", "accent"),
            format_moment(run.started, self._now),
            run.suite,
            status_cell(run.verdict),
            self._passed(run.id),
            self._took(run),
            run.host or "",
            TableCell(run.id, "muted"),
        )

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return what the run is sorted by."""
        run = self._runs[key]
        values = {
            "mark": run.id == self.marked,
            "started": run.started,
            "duration": run.duration_s,
            "cases": self._passed(run.id) or None,
        }
        return values[column] if column in values else getattr(run, column)

    def text(self, key: Hashable) -> str:
        """Return nothing: the page's own filter has chosen the runs."""
        return ""

    def _took(self, run: RunSummary) -> str:
        if run.verdict == RunStatus.RUNNING and run.started is not None:
            return format_duration(max(0.0, self._now - run.started))
        return "" if run.duration_s is None else format_duration(run.duration_s)
