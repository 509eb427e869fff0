"""Statuses, times and other values as the cells of tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from spbench.record.number_formatting import (
    NOISY,
    SLOW,
    format_status,
    format_time,
    format_value,
)
from spbench.record.planted_faults import FaultOutcome
from spbench.tui.widgets.table_columns import TableCell
from spbench_core.events.statuses import CaseStatus, RunStatus

PRELIMINARY = "…"
"""The sign of a value from some of the iterations."""
_STYLES: Mapping[str, str] = {CaseStatus.UNFINISHED: "slow", CaseStatus.FLAKY: "passed"}
STATUS_COLOURS: Mapping[str, str] = {
    **dict.fromkeys((RunStatus.PASSED, CaseStatus.FLAKY), "$text-success"),
    **dict.fromkeys((RunStatus.FAILED, RunStatus.ERROR, RunStatus.TIMEOUT), "$text-error"),
    **dict.fromkeys((RunStatus.UNFINISHED, RunStatus.UNREADABLE), "$text-warning"),
    RunStatus.RUNNING: "$text-primary",
}
"""The colours of statuses of runs and cases; the other statuses are muted."""
_YEAR_SHOWN_AFTER_S = 300 * 86400.0


def name_readings(subject: str, *, ended: bool) -> str:
    """Return a title with the time of readings: ``GPUs, now``."""
    return f"{subject}, {'at the end' if ended else 'now'}"


def make_status_cell(
    status: str, text: str = "", *, noisy: bool = False, slow: bool = False
) -> TableCell:
    """Return a status with symbol and colour, and signs of slow and noisy.

    A planted fault that was found has another colour than failures, since the user expects it.
    """
    signs = [sign for sign, is_shown in ((SLOW, slow), (NOISY, noisy)) if is_shown]
    style = "accent" if text == FaultOutcome.FOUND else _STYLES.get(status, status)
    if slow and status == CaseStatus.PASSED:
        style = "slow"
    return TableCell(" ".join([format_status(status, text), *signs]), style)


def make_status_span(status: str, text: str = "") -> tuple[str, str]:
    """Return a status with its symbol, and its colour."""
    if text == FaultOutcome.FOUND:
        return format_status(status, text), "$text-accent"
    return format_status(status, text), STATUS_COLOURS.get(status, "$text-muted")


def format_time_cell(ms: float | None) -> str:
    """Return a time, given in ms, with its unit; empty if it is None."""
    return "" if ms is None else format_time(ms)


def format_value_cell(value: float | None, unit: str, name: str = "") -> str:
    """Return the value of a metric with its unit; empty if it is None."""
    return "" if value is None else format_value(value, unit, name)


def format_moment(seconds: float | None, now: float) -> str:
    """Return ``11-21 14:36`` (UTC), or the date with its year if it is long ago."""
    if seconds is None:
        return "unknown"
    return _format_time(seconds, "%m-%d %H:%M" if _is_recent(seconds, now) else "%Y-%m-%d")


def format_day(seconds: float, now: float) -> str:
    """Return ``11-21`` (UTC), or the date with its year if it is long ago."""
    return _format_time(seconds, "%m-%d" if _is_recent(seconds, now) else "%Y-%m-%d")


def format_exact_moment(seconds: float | None, now: float) -> str:
    """Return ``11-21 14:36:05`` (UTC), with the year if it is long ago."""
    if seconds is None:
        return "unknown"
    day = "%m-%d" if _is_recent(seconds, now) else "%Y-%m-%d"
    return _format_time(seconds, f"{day} %H:%M:%S")


def _is_recent(seconds: float, now: float) -> bool:
    return 0 <= now - seconds < _YEAR_SHOWN_AFTER_S


def _format_time(seconds: float, pattern: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(pattern)
