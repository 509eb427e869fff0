"""Figures, moments and verdicts as cells of the page's tables."""

from __future__ import annotations

from datetime import UTC, datetime

from spbench.record.number_formatting import number
from spbench.record.runs.history import RUNNING, UNFINISHED, UNREADABLE
from spbench.tui.signs import signed
from spbench.tui.widgets.table_columns import TableCell

_COLOURS = {
    "passed": "$text-success",
    **dict.fromkeys(("failed", "error", "timeout"), "$text-error"),
    **dict.fromkeys((UNFINISHED, UNREADABLE), "$text-warning"),
    RUNNING: "$text-primary",
}
_OUTCOMES = {
    "better": ("▲", "passed"),
    "worse": ("▼", "failed"),
    "same": ("=", "muted"),
    "not enough samples": ("?", "accent"),
    "not comparable": ("≠", "accent"),
}
_RECENT = 300 * 86400.0


def status_span(status: str) -> tuple[str, str]:
    """Return a verdict or status behind its sign, and its colour."""
    return signed(status), _COLOURS.get(status, "$text-muted")


def outcome_cell(outcome: str | None) -> TableCell:
    """Return what a metric has become: sign, word and colour; nothing where it was not judged."""
    if outcome is None:
        return TableCell("")
    sign, style = _OUTCOMES[outcome]
    return TableCell(f"{sign} {outcome}", style)


def figure(value: float | None) -> str:
    """Return a number in three figures, or nothing."""
    return "" if value is None else number(value)


def percent(share: float | None) -> str:
    """Return ``61 %``, or nothing."""
    return "" if share is None else f"{100 * share:.0f} %"


def with_unit(value: float | None, unit: str) -> str:
    """Return a number and its unit, ``1`` being none."""
    return f"{figure(value)} {unit}" if unit not in ("", "1") else figure(value)


def duration(seconds: float | None) -> str:
    """Return ``2.5 s``, ``2:05`` or ``1:02:05``; nothing where it is not known."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def moment(seconds: float | None, now: float) -> str:
    """Return ``11-21 14:36`` (UTC), or the day with its year where that is long ago."""
    if seconds is None:
        return "unknown"
    form = "%m-%d %H:%M" if 0 <= now - seconds < _RECENT else "%Y-%m-%d"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)
