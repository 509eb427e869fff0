"""The cases of a run as rows of a table, with status, progress and times."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.efficiency import (
    ABOVE_REFERENCE,
    MAX_EFFICIENCY,
    SLOW_REFERENCE,
    compute_efficiency,
    format_efficiency,
)
from spbench.record.messages.phases import compute_phase_percent, find_phase_name
from spbench.record.noise import describe_case_noise, is_disturbed
from spbench.record.number_formatting import DISTURBED, NOISY
from spbench.tui.cells import PRELIMINARY, format_time_cell, make_status_cell
from spbench.tui.feed import Feed
from spbench.tui.run.problems import SlowCases
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench.tui.widgets.text import cell_width
from spbench_core.events.statuses import CaseStatus

MIN_ID_WIDTH = 14
_STATUS = "status"
_STATUS_WIDTH = 12
_RUNNING_WIDTH = 14
"""Columns of the status until the run has ended, with space for ``… warmup 50 %``."""
_SIGN_WIDTH = 2
COLUMNS = (
    Column(_STATUS, "status", _STATUS_WIDTH),
    Column("case", "case", MIN_ID_WIDTH, flexible=True),
    Column("ranks", "ranks", 5, "right", drop_priority=4),
    Column("time", "time", 8, "right"),
    Column("reference", "reference", 9, "right", drop_priority=2),
    Column("efficiency", "efficiency", 10, "right", drop_priority=1),
    Column("checks", "checks", 9, "right"),
)
_MIN_CHECKS_WIDTH = 6
LEGEND = "time: median over iterations of the slowest rank in each iteration"
"""The meaning of the times, for the title of the table."""
_DISTURBED = "~ disturbed: ranks shared cores or other work had them"
_NOISY = f"{NOISY} noisy: other work used the cores of ranks"
_NOISY_AND_DISTURBED = (
    f"{NOISY} other work used the cores, {DISTURBED} disturbed by that or shared cores"
)


def explain_signs(case: CaseState, *, disturbed: bool) -> str:
    """Return the meaning of the signs in the row of an ended case; empty without any."""
    is_noisy = describe_case_noise(case) is not None
    if disturbed:
        return _NOISY_AND_DISTURBED if is_noisy else _DISTURBED
    return _NOISY if is_noisy else ""


def _describe_waiting(case: CaseState) -> str:
    """Return ``waiting 2/4`` for a case that has ended 2 of its 4 repeats."""
    num_repeats = case.repeats if case.identity.until is None else "?"
    return f"{CaseStatus.WAITING} {case.num_ended_repeats}/{num_repeats}"


@dataclass(frozen=True, slots=True)
class CaseRow:
    """The values of a case in its row.

    Attributes:
        time: The time in ms: that of the slowest rank per iteration, then the median.
        is_preliminary: Whether the case is running or was cut short, so that iterations are
            missing.
        reference: The reference of the time, in ms.
        checks: Numbers of passed and of all checks, each counted once per rank.
        noisy: Whether other work used the cores of the ranks.
        disturbed: Whether the case is noisy, or had more ranks than cores.
        status_text: The text of the status, for a running case that of its phase in the headline.
        slow: Whether a rank is slow for which no fault was planted, or a link.
    """

    status: CaseStatus
    id: str
    ranks: int
    time: float | None
    is_preliminary: bool
    reference: float | None
    checks: tuple[int, int]
    status_text: str = ""
    noisy: bool = False
    disturbed: bool = False
    slow: bool = False

    @property
    def efficiency(self) -> float | None:
        """The reference divided by the time."""
        return compute_efficiency(self.time, self.reference)

    @property
    def has_slow_reference(self) -> bool:
        """Whether the reference is so slow that the time cannot be compared with it."""
        return (self.efficiency or 0.0) > MAX_EFFICIENCY

    def cells(self) -> list[TableCell | str]:
        """Return the cells, in the order of the columns."""
        passed, total = self.checks
        preliminary = PRELIMINARY if self.is_preliminary and self.time is not None else ""
        is_muted = self.is_preliminary or self.disturbed or self.has_slow_reference
        efficiency = format_efficiency(self.efficiency, disturbed=self.disturbed)
        return [
            make_status_cell(self.status, self.status_text, noisy=self.noisy, slow=self.slow),
            self.id,
            str(self.ranks),
            preliminary + format_time_cell(self.time),
            TableCell(format_time_cell(self.reference), "muted"),
            TableCell(efficiency, "muted" if is_muted else ""),
            TableCell(f"{passed}/{total}", self._choose_checks_style()) if total else "",
        ]

    def measure_status_width(self) -> int:
        """Return the cells of a status with its own text and signs."""
        signs = self.slow + self.noisy
        return _SIGN_WIDTH + len(self.status_text or self.status) + _SIGN_WIDTH * signs

    def _choose_checks_style(self) -> str:
        """Return the style of the checks; passed ones are muted if the case was cut short."""
        passed, total = self.checks
        if passed < total:
            return "failed"
        return "muted" if self.status.is_cut_short else "passed"

    def sort_value(self, column: str) -> Any:
        """Return the sort key in a column."""
        if column == "checks":
            passed, total = self.checks
            return passed - total if total else None
        return getattr(self, "id" if column == "case" else column)


class RunCaseRows:
    """The rows of all cases; the row of a finished case is built once.

    Attributes:
        columns: The columns of the table; only `update` changes them.
    """

    def __init__(self, feed: Feed) -> None:
        self.columns: tuple[Column, ...] = COLUMNS
        self._feed = feed
        self._rows: dict[str, CaseRow] = {}
        # With the state of each case, since a retry or a resumed run replaces it.
        self._row_states: dict[str, CaseState] = {}
        self._times: dict[str, tuple[CaseState, float | None]] = {}
        self._slow_cases = SlowCases(feed.state)

    def update(self) -> None:
        """Rebuild the rows of the cases that may have changed."""
        self._slow_cases.update()
        for case in self._feed.state.cases.values():
            row = self._rows.get(case.id)
            if (
                row is None
                or self._row_states[case.id] is not case
                or case.status == CaseStatus.RUNNING
                or row.status != self._feed.case_status(case)
                or row.slow != self._is_slow(case)
            ):
                self._update_row(case)
        self.columns = tuple(self._fit_columns())

    def _fit_columns(self) -> Iterator[Column]:
        """Yield the columns, as wide as their texts need."""
        status_widths = (row.measure_status_width() for row in self._rows.values())
        min_status_width = _STATUS_WIDTH if self._feed.ended else _RUNNING_WIDTH
        status_width = max([min_status_width, *status_widths])
        checks = ("/".join(map(str, row.checks)) for row in self._rows.values())
        checks_width = max([_MIN_CHECKS_WIDTH, *map(len, checks)])
        for column in COLUMNS:
            if column.key == _STATUS:
                yield replace(column, width=status_width)
            elif column.key == "checks":
                yield replace(column, width=checks_width)
            else:
                yield column

    def measure_width(self) -> int:
        """Return the width of a table with all columns and whole ids, without its margins."""
        ids = map(cell_width, self._rows)
        widths = {column.key: column.width for column in (*COLUMNS, *self.columns)}
        widths["case"] = max([MIN_ID_WIDTH, *ids]) - 1
        return sum(width + 1 for width in widths.values())

    async def compute_times(self) -> None:
        """Compute the times of finished cases in threads, one after another."""
        while pending := self._list_pending_cases():
            for case in pending:
                try:
                    summary = await asyncio.to_thread(case.summary, "time_ms")
                except RuntimeError:  # a late event changed the samples at the same time
                    return
                self._times[case.id] = case, summary.p50 if summary else None
                # `update` adds the rows, in the order of the suite.
                if case.id in self._rows and self._feed.state.cases.get(case.id) is case:
                    self._update_row(case)

    @property
    def has_pending_times(self) -> bool:
        """Whether the time of a finished case has not been computed."""
        return bool(self._list_pending_cases())

    def _list_pending_cases(self) -> list[CaseState]:
        cases = self._feed.state.cases.values()
        return [case for case in cases if case.status.is_final and not self._has_time(case)]

    def _has_time(self, case: CaseState) -> bool:
        """Whether the final time was computed, and not only that of an earlier attempt."""
        return case.id in self._times and self._times[case.id][0] is case

    def _is_slow(self, case: CaseState) -> bool:
        return case.status.is_final and self._slow_cases.includes(case)

    def _update_row(self, case: CaseState) -> None:
        self._rows[case.id] = self._build_row(case)
        self._row_states[case.id] = case

    def _build_row(self, case: CaseState) -> CaseRow:
        running = case.status == CaseStatus.RUNNING
        waits = case.waits_for_launch and not self._feed.ended
        status_text = _describe_waiting(case) if waits else ""
        if running and not waits:
            status_text = self._describe_phase(case)
        elif case.status.is_bad:
            status_text = case.execution.status_text
        is_live = running and case is self._feed.rows.case
        # Until the final time is computed, the last preliminary time is shown; they are equal.
        is_same_attempt = self._row_states.get(case.id) is case
        previous = self._rows.get(case.id) if is_same_attempt else None
        time = previous.time if previous is not None else None
        if self._has_time(case):
            _, time = self._times[case.id]
        elif waits and time is None:  # the page has opened after the repeats so far
            summary = case.summary("time_ms")
            time = summary.p50 if summary else None
        status = CaseStatus.WAITING if waits else self._feed.case_status(case)
        return CaseRow(
            status=status,
            id=case.id,
            ranks=case.identity.np,
            time=self._feed.rows.headline_time() if is_live else time,
            is_preliminary=status.is_cut_short or (running and not self._feed.ended),
            reference=case.measured.median_references.get("time_ms", {}).get("value"),
            checks=case.check_counts,
            status_text=status_text,
            noisy=not running and describe_case_noise(case) is not None,
            disturbed=not running and is_disturbed(case, self._feed.state.jobs),
            slow=self._is_slow(case),
        )

    def _describe_phase(self, case: CaseState) -> str:
        """Return the phase in the headline: ``timing 50 %``; empty if it is unknown."""
        percent = compute_phase_percent(self._feed.state, case.id)
        if percent is None or self._feed.ended:
            return ""
        return f"{find_phase_name(self._feed.state, case.id)} {percent} %"

    def efficiency_note(self) -> str:
        """Return an explanation of unusual efficiencies and signs; empty without any."""
        rows = self._rows.values()
        if any(row.has_slow_reference and not row.is_preliminary for row in rows):
            return SLOW_REFERENCE
        if any((row.efficiency or 0.0) > 1 and not row.is_preliminary for row in rows):
            return ABOVE_REFERENCE
        is_noisy = any(row.noisy for row in rows)
        if any(row.disturbed and row.efficiency for row in rows):
            return _NOISY_AND_DISTURBED if is_noisy else _DISTURBED
        return _NOISY if is_noisy else ""

    def keys(self) -> Sequence[Hashable]:
        """Return the ids of the cases in the order of the suite."""
        return list(self._rows)

    def get(self, case: str) -> CaseRow:
        """Return the row of a case."""
        return self._rows[case]

    def version(self, key: Hashable) -> Hashable:
        """Return the row itself, since equal rows have equal cells."""
        return self._rows[str(key)]

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a case."""
        return self._rows[str(key)].cells()

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a case."""
        return self._rows[str(key)].sort_value(column)

    def search_text(self, key: Hashable) -> str:
        """Return the text that a filter searches."""
        row = self._rows[str(key)]
        return f"{row.status}{' slow' if row.slow else ''} {row.id}".lower()
