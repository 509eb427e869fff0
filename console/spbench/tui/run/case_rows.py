"""The cases of a run as rows of a table: verdict, progress, time beside its limit, checks."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.noise import noise_of
from spbench.tui.feed import Feed
from spbench.tui.run.cells import GOING_ON, figure
from spbench.tui.signs import status_cell, without_keys
from spbench.tui.widgets.table_columns import Column, TableCell

COLUMNS = (
    Column("status", "status", 12),
    Column("case", "case", 12, flexible=True),
    Column("ranks", "ranks", 5, "right", rank=2),
    Column("progress", "done", 5, "right"),
    Column("p50", "p50 ms", 8, "right"),
    Column("limit", "limit ms", 8, "right", rank=1),
    Column("checks", "checks", 9, "right"),
)


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case as its row shows it.

    Attributes:
        short: Whether its id is written without the keys of what is swept.
        done: The part of its iterations that its ranks have done, until it is judged.
        p50: Its time in ms; while it runs, the typical rank's, and ``so_far`` is set.
        limit: What the hardware allows, in ms.
        checks: How many ranks have passed all their checks, and how many have reported any.
        noisy: Whether other work had the cores of its ranks.
    """

    status: str
    id: str
    short: bool
    ranks: int
    done: float | None
    p50: float | None
    so_far: bool
    limit: float | None
    checks: tuple[int, int]
    noisy: bool = False

    def cells(self) -> list[TableCell | str]:
        """Return its cells, in the columns' order."""
        passed, told = self.checks
        about = "~" if self.so_far and self.p50 is not None else ""
        return [
            status_cell(self.status, noisy=self.noisy),
            without_keys(self.id) if self.short else self.id,
            str(self.ranks),
            "" if self.done is None else f"{self.done:.0%}",
            about + figure(self.p50),
            TableCell(figure(self.limit), "muted"),
            TableCell(f"{passed}/{told}", "failed" if passed < told else "passed") if told else "",
        ]

    def value(self, column: str) -> Any:
        """Return what it is sorted by."""
        if column == "checks":
            passed, told = self.checks
            return passed - told if told else None
        names = {"case": "id", "progress": "done"}
        return getattr(self, names.get(column, column))


class RunCaseRows:
    """The rows of all cases; those that are judged are made once.

    Attributes:
        short: Whether ids are written without the keys of what is swept.
    """

    def __init__(self, feed: Feed) -> None:
        self.short = False
        self._feed = feed
        self._rows: dict[str, CaseRow] = {}
        self._medians: dict[str, float | None] = {}

    def look(self) -> None:
        """Make the rows again of the cases that may have changed."""
        for case in self._feed.state.cases.values():
            known, now = self._rows.get(case.id), (self._feed.status_of(case), self.short)
            if case.status == "running" or known is None or (known.status, known.short) != now:
                self._rows[case.id] = self._row(case)

    async def find_medians(self) -> None:
        """Find the times of judged cases, one after another; a thread does the counting."""
        while (case := self._next()) is not None:
            try:
                summary = await asyncio.to_thread(case.summary, "time_ms")
            except RuntimeError:  # it had a late event just then
                return
            self._medians[case.id] = summary.p50 if summary else None
            self._rows[case.id] = self._row(case)

    @property
    def behind(self) -> bool:
        """Whether there are judged cases whose time is not known yet."""
        return self._next() is not None

    def _next(self) -> CaseState | None:
        cases = self._feed.state.cases.values()
        judged = (case for case in cases if case.status not in GOING_ON)
        return next((case for case in judged if case.id not in self._medians), None)

    def _row(self, case: CaseState) -> CaseRow:
        running = case.status == "running"
        here = running and case is self._feed.rows.case
        return CaseRow(
            status=self._feed.status_of(case),
            id=case.id,
            short=self.short,
            ranks=case.identity.np,
            done=self._done(case) if running else None,
            p50=self._feed.rows.typical() if here else self._medians.get(case.id),
            so_far=running,
            limit=case.measured.limits.get("time_ms", {}).get("value"),
            checks=(sum(case.measured.checked.values()), len(case.measured.checked)),
            noisy=not running and noise_of(case) is not None,
        )

    def _done(self, case: CaseState) -> float:
        """The part of the timed iterations that is done, over all ranks and repeats."""
        ranks = (rank for rank in self._feed.state.ranks.values() if rank.case == case.id)
        begun = sum(rank.done / rank.total for rank in ranks if rank.total)
        return min(1.0, (len(case.measured.ended) + begun) / (case.identity.np * case.repeats))

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
        return self._rows[str(key)].value(column)

    def text(self, key: Hashable) -> str:
        """Return what a filter looks in."""
        row = self._rows[str(key)]
        return f"{row.status} {row.id}".lower()
