"""Statuses and the ids of cases, as every page writes them."""

from __future__ import annotations

from collections.abc import Mapping

from spbench.record.number_formatting import GLYPHS, NOISY
from spbench.tui.widgets.table_columns import TableCell
from spbench_core.events.statuses import CaseStatus

STATUS_SYMBOLS: Mapping[str, str] = {
    **GLYPHS,
    CaseStatus.RUNNING: "…",
    CaseStatus.WAITING: "·",
    CaseStatus.UNFINISHED: "!",
}
FULL_IDS_WIDTH = 100
"""Columns of a table from which the ids of cases have room."""
_STYLES: Mapping[str, str] = {CaseStatus.UNFINISHED: "slow"}


def format_status(status: str) -> str:
    """Return a verdict or status behind its sign."""
    return f"{STATUS_SYMBOLS.get(status, '?')} {status}"


def status_cell(status: str, *, noisy: bool = False) -> TableCell:
    """Return a verdict or status: sign, word and colour; behind it a sign of noisy times."""
    told = f"{format_status(status)} {NOISY}" if noisy else format_status(status)
    return TableCell(told, _STYLES.get(status, status))
