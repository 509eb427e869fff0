"""The cases of a run as rows of a table: verdict, progress, time and its reference, checks."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.efficiency import ABOVE_REFERENCE, compute_efficiency, format_efficiency
from spbench.record.noise import describe_case_noise, is_disturbed
from spbench.report.text_tables import drop_parameter_names
from spbench.tui.cells import format_time_cell, status_cell
from spbench.tui.feed import Feed
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import CaseStatus

COLUMNS = (
    Column("status", "status", 12),
    Column("case", "case", 14, flexible=True),
    Column("ranks", "ranks", 5, "right", rank=4),
    Column("progress", "done", 4, "right", rank=3),
    Column("time", "time", 8, "right"),
    Column("reference", "reference", 9, "right", rank=2),
    Column("efficiency", "efficiency", 10, "right", rank=1),
    Column("checks", "checks", 9, "right"),
)
LEGEND = "time: slowest rank, median"
"""The statistic of the column of times, for the table's title."""
_SO_FAR = "…"
_DISTURBED = "~ disturbed: ranks shared cores or other work had them"


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case as its row shows it.

    Attributes:
        short: Whether its id is written without the keys of what is swept.
        done: The part of its iterations that its ranks have done, until it is judged.
        time: Its headline time in ms: the slowest rank's of each iteration, then the median.
        so_far: Whether it still runs, so that the time is that of the iterations so far.
        reference: The reference of the time, in ms.
        checks: How many checks have passed and were made, each counted once per rank.
        noisy: Whether other work had the cores of its ranks.
        disturbed: Whether it is noisy, or had more ranks than cores.
    """

    status: CaseStatus
    id: str
    short_id: bool
    ranks: int
    done: float | None
    time: float | None
    so_far: bool
    reference: float | None
    checks: tuple[int, int]
    noisy: bool = False
    disturbed: bool = False

    @property
    def efficiency(self) -> float | None:
        """Its reference over its time."""
        return compute_efficiency(self.time, self.reference)

    def cells(self) -> list[TableCell | str]:
        """Return its cells, in the columns' order."""
        passed, made = self.checks
        preliminary = _SO_FAR if self.so_far and self.time is not None else ""
        efficiency = format_efficiency(self.efficiency, disturbed=self.disturbed)
        return [
            status_cell(self.status, noisy=self.noisy),
            drop_parameter_names(self.id) if self.short_id else self.id,
            str(self.ranks),
            "" if self.done is None else f"{self.done:.0%}",
            preliminary + format_time_cell(self.time),
            TableCell(format_time_cell(self.reference), "muted"),
            TableCell(efficiency, "muted" if self.so_far or self.disturbed else ""),
            TableCell(f"{passed}/{made}", "failed" if passed < made else "passed") if made else "",
        ]

    def sort_value(self, column: str) -> Any:
        """Return what it is sorted by."""
        if column == "checks":
            passed, made = self.checks
            return passed - made if made else None
        names = {"case": "id", "progress": "done"}
        return getattr(self, names.get(column, column))


class RunCaseRows:
    """The rows of all cases; those that are judged are made once.

    Attributes:
        short: Whether ids are written without the keys of what is swept.
    """

    def __init__(self, feed: Feed) -> None:
        self.short_ids = False
        self._feed = feed
        self._rows: dict[str, CaseRow] = {}
        self._times: dict[str, float | None] = {}

    def update(self) -> None:
        """Make the rows again of the cases that may have changed."""
        for case in self._feed.state.cases.values():
            known = self._rows.get(case.id)
            now = (self._feed.case_status(case), self.short_ids)
            if (
                case.status == CaseStatus.RUNNING
                or known is None
                or (known.status, known.short_id) != now
            ):
                self._rows[case.id] = self._row(case)

    async def compute_times(self) -> None:
        """Find the times of judged cases, one after another; a thread does the counting."""
        while (case := self._next()) is not None:
            try:
                summary = await asyncio.to_thread(case.summary, "time_ms")
            except RuntimeError:  # it had a late event just then
                return
            self._times[case.id] = summary.p50 if summary else None
            self._rows[case.id] = self._row(case)

    @property
    def has_pending_times(self) -> bool:
        """Whether there are judged cases whose time is not known yet."""
        return self._next() is not None

    def _next(self) -> CaseState | None:
        cases = self._feed.state.cases.values()
        judged = (case for case in cases if case.status.is_final)
        return next((case for case in judged if case.id not in self._times), None)

    def _row(self, case: CaseState) -> CaseRow:
        running = case.status == CaseStatus.RUNNING
        here = running and case is self._feed.rows.case
        known = self._rows.get(case.id)
        # Until a thread has the final time, the last one so far is shown: they are the same.
        time = self._times.get(case.id, known.time if known is not None else None)
        return CaseRow(
            status=self._feed.case_status(case),
            id=case.id,
            short_id=self.short_ids,
            ranks=case.identity.np,
            done=self._done(case) if running else None,
            time=self._feed.rows.headline_time() if here else time,
            so_far=running and not self._feed.ended,
            reference=case.measured.limits.get("time_ms", {}).get("value"),
            checks=case.check_counts,
            noisy=not running and describe_case_noise(case) is not None,
            disturbed=not running and is_disturbed(case, self._feed.state.jobs),
        )

    def _done(self, case: CaseState) -> float:
        """The part of the timed iterations that is done, over all ranks and repeats."""
        ranks = (rank for rank in self._feed.state.ranks.values() if rank.case == case.id)
        begun = sum(rank.done / rank.total for rank in ranks if rank.total)
        return min(1.0, (len(case.measured.ended) + begun) / (case.identity.np * case.repeats))

    def efficiency_note(self) -> str:
        """Return one explanation of the efficiencies that are shown; nothing if none needs it."""
        rows = self._rows.values()
        if any((row.efficiency or 0.0) > 1 and not row.so_far for row in rows):
            return ABOVE_REFERENCE
        return _DISTURBED if any(row.disturbed and row.efficiency for row in rows) else ""

    # What a table asks for

    def keys(self) -> Sequence[Hashable]:
        """Return the cases' ids in the suite's order."""
        return list(self._rows)

    def version(self, key: Hashable) -> Hashable:
        """Return the row itself: it is equal as long as its cells are."""
        return self._rows[str(key)]

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a case."""
        return self._rows[str(key)].cells()

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return what a case is sorted by."""
        return self._rows[str(key)].sort_value(column)

    def text(self, key: Hashable) -> str:
        """Return what a filter looks in."""
        row = self._rows[str(key)]
        return f"{row.status} {row.id}".lower()
