"""The cases of a suite as rows of a table, and the lines of their entries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from spbench.engine.run_estimate import UNKNOWN, CaseEstimate, RunEstimate
from spbench.tui.suites.rejected_entry import RejectedEntry
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench.tui.widgets.table_columns import Column, TableCell

if TYPE_CHECKING:
    from spbench.suites.case import Case
    from spbench.suites.edit.outline import EntryLines

COLUMNS = (
    Column("case", "case", 16, flexible=True),
    Column("benchmark", "benchmark", 17, drop_priority=2),
    Column("ranks", "ranks", 5, align="right"),
    Column("estimate", "estimate", 11, align="right"),
    Column("line", "line", 4, align="right", drop_priority=3),
)
ERROR_COLUMNS = (
    Column("case", "case", 16, flexible=True),
    Column("benchmark", "benchmark", 17, drop_priority=2),
    Column("ranks", "ranks", 5, align="right"),
    Column("error", "error", 20, drop_priority=1, flexible=True),
)
"""The columns if entries have errors, without estimates, for which the text must be valid."""
MARK = "●"
ALL_SLOTS = "all"
"""Shown as the number of ranks if a case uses all slots of the hosts."""
PENDING = "…"
EXCESS_SIGN = "▲"
"""Before a number of ranks that is too large for this machine."""


class EntryPosition(NamedTuple):
    """The name and the first line of an entry of ``cases:``."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class SuiteCaseRows:
    """The rows of cases and of entries with errors.

    The version of a row changes only with its content.

    Attributes:
        cases: The cases, in the order of the file.
        rejected: The entries with errors, which make no cases.
        spans: The lines of the case entries, ascending.
        current: Whether the cases are those of the current text.
        marked: The ids of the marked cases.
        estimates: The estimated durations by id.
        estimating: Whether estimates that are missing are being computed.
        excess_by_case: Messages on cases with too many ranks for this machine, by id.
    """

    cases: Sequence[Case] = ()
    rejected: Sequence[RejectedEntry] = ()
    spans: Sequence[EntryLines] = ()
    current: bool = True
    marked: frozenset[str] = frozenset()
    estimates: Mapping[str, CaseEstimate] = field(default_factory=dict)
    estimating: bool = True
    excess_by_case: Mapping[str, str] = field(default_factory=dict)
    _by_id: dict[Hashable, Case | RejectedEntry] = field(init=False, default_factory=dict)
    _tops: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._tops.extend(span.top for span in self.spans)
        rows: list[Case | RejectedEntry] = [*self.cases, *self.rejected]
        if self.rejected:
            rows.sort(key=self.line)
        self._by_id.update((row.id, row) for row in rows)

    @property
    def columns(self) -> Sequence[Column]:
        """The columns of the table."""
        return ERROR_COLUMNS if self.rejected else COLUMNS

    def replace_marks(self, marked: Iterable[str]) -> SuiteCaseRows:
        """Return the rows with these cases marked."""
        return replace(self, marked=frozenset(marked))

    def replace_estimates(self, estimate: RunEstimate, estimating: bool) -> SuiteCaseRows:
        """Return the rows with these estimates, final unless still estimating."""
        return replace(self, estimates=estimate.cases, estimating=estimating)

    def case(self, key: Hashable) -> Case | None:
        """Return the case with an id; None if there is none."""
        row = self._by_id.get(key)
        return None if isinstance(row, RejectedEntry) else row

    def rejected_entry(self, key: Hashable) -> RejectedEntry | None:
        """Return the entry with errors and an id; None if there is none."""
        row = self._by_id.get(key)
        return row if isinstance(row, RejectedEntry) else None

    def find_position(self, key: Hashable) -> EntryPosition | None:
        """Return the entry of a row; None if there is no such row."""
        row = self._by_id.get(key)
        return None if row is None else EntryPosition(row.name, self.line(row))

    def keys(self) -> Sequence[Hashable]:
        """Return the ids, in the order of the file."""
        return list(self._by_id)

    def version(self, key: Hashable) -> Hashable:
        """Return the values that the row shows."""
        case = self._by_id[key]
        if isinstance(case, RejectedEntry):
            return case, self.current
        shown = case.benchmark, case.np, self.line(case), self._format_estimate(case)
        return *shown, self.current, case.id in self.marked, case.id in self.excess_by_case

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a row in the order of the columns."""
        row = self._by_id[key]
        if isinstance(row, RejectedEntry):
            return self._list_rejected_cells(row)
        cells = self._list_case_cells(row)
        return [*cells[:3], ""] if self.rejected else cells

    def _list_rejected_cells(self, entry: RejectedEntry) -> list[TableCell | str]:
        return [
            TableCell(f"{PROBLEM_SIGN} {entry.name}", "failed"),
            TableCell(entry.benchmark, "accent" if self.current else "muted"),
            entry.ranks,
            TableCell(next(iter(entry.errors)), "failed"),
        ]

    def _list_case_cells(self, case: Case) -> list[TableCell | str]:
        ranks = ALL_SLOTS if case.np is None else str(case.np)
        style = "" if self.current else "muted"
        rank_style = style
        if case.id in self.excess_by_case:
            ranks = f"{EXCESS_SIGN}{ranks}"
            rank_style = style or "slow"
        return [
            TableCell(f"{MARK} {case.id}" if case.id in self.marked else case.id, style),
            TableCell(case.benchmark, style or "accent"),
            TableCell(ranks, rank_style),
            TableCell(self._format_estimate(case), style),
            TableCell(str(self.line(case)), "muted"),
        ]

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key in a column; all slots and unknown durations sort last."""
        case = self._by_id[key]
        if isinstance(case, RejectedEntry):
            return self._find_rejected_sort_value(case, column)
        ranks = float("inf") if case.np is None else case.np
        estimate = self.estimates.get(case.id)
        seconds = None if estimate is None else estimate.own_seconds
        values = {
            "benchmark": case.benchmark,
            "ranks": ranks,
            "estimate": float("inf") if seconds is None else seconds,
            "line": case.line,
            "error": "",
        }
        return values.get(column, case.id)

    @staticmethod
    def _find_rejected_sort_value(entry: RejectedEntry, column: str) -> Any:
        ranks = int(entry.ranks) if entry.ranks.isdecimal() else 0
        values = {"benchmark": entry.benchmark, "ranks": ranks, "error": entry.errors[0]}
        return values.get(column, entry.id)

    def _format_estimate(self, case: Case) -> str:
        estimate = self.estimates.get(case.id)
        if estimate is None and self.estimating:
            return PENDING
        return UNKNOWN if estimate is None else estimate.own_text

    def search_text(self, key: Hashable) -> str:
        """Return id, benchmark and parameters."""
        from spbench.suites.expand import format_label  # imported for the cases before

        case = self._by_id[key]
        if isinstance(case, RejectedEntry):
            return f"{case.name} {case.benchmark} {' '.join(case.errors)}".lower()
        params = " ".join(f"{name}={format_label(value)}" for name, value in case.params.items())
        return f"{case.id} {case.benchmark} {params}".lower()

    def line(self, case: Case | RejectedEntry) -> int:
        """Return the first line of the entry of a row."""
        span = self.find_span(case.line)
        return span.first if span else case.line

    def find_span(self, line: int) -> EntryLines | None:
        """Return the entry at a line, including its comment; None between entries."""
        index = bisect_right(self._tops, line) - 1
        return self.spans[index] if index >= 0 and line <= self.spans[index].last else None

    def list_ids_on_line(self, line: int) -> Sequence[Hashable]:
        """Return the ids of the rows of the entry at a line."""
        span = self.find_span(line)
        if span is None:
            return ()
        rows = self._by_id.values()
        return [row.id for row in rows if span.first <= row.line <= span.last]
