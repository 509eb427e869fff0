"""Timestamps in the format of reports."""

from __future__ import annotations

from datetime import UTC, datetime

from spbench.record.number_formatting import YEAR_10000


def format_timestamp(seconds: float | None) -> str | None:
    """Return seconds since the epoch as UTC, RFC 3339.

    None if they are unknown, or outside the calendar because a clock was wrong.
    """
    if seconds is None or not 0 <= seconds < YEAR_10000:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def parse_timestamp(text: str | None) -> float | None:
    """Return the seconds since the epoch of a timestamp; None if it is invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def format_day_and_time(seconds: float | None) -> str:
    """Return ``2026-11-01T08:30:00Z``, or ``unknown``."""
    text = format_timestamp(seconds)
    return f"{text[:19]}Z" if text else "unknown"
