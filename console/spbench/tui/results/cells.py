"""Figures, moments and verdicts as cells of the page's tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from spbench.record.number_formatting import format_value
from spbench.tui.signs import format_status
from spbench_core.events.statuses import RunStatus

_COLOURS: Mapping[str, str] = {
    RunStatus.PASSED: "$text-success",
    **dict.fromkeys((RunStatus.FAILED, RunStatus.ERROR, RunStatus.TIMEOUT), "$text-error"),
    **dict.fromkeys((RunStatus.UNFINISHED, RunStatus.UNREADABLE), "$text-warning"),
    RunStatus.RUNNING: "$text-primary",
}
_RECENT = 300 * 86400.0


def status_span(status: str) -> tuple[str, str]:
    """Return a verdict or status behind its sign, and its colour."""
    return format_status(status), _COLOURS.get(status, "$text-muted")


def format_value_cell(value: float | None, unit: str, name: str = "") -> str:
    """Return a metric's value with its unit; nothing if there is none."""
    return "" if value is None else format_value(value, unit, name)


def format_moment(seconds: float | None, now: float) -> str:
    """Return ``11-21 14:36`` (UTC), or the day with its year where that is long ago."""
    if seconds is None:
        return "unknown"
    form = "%m-%d %H:%M" if 0 <= now - seconds < _RECENT else "%Y-%m-%d"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)
