"""Timestamps as reports write them."""

from __future__ import annotations

from datetime import UTC, datetime

YEAR_10000 = 253402300800.0
"""Seconds since the epoch at which RFC 3339 ends."""


def timestamp(seconds: float | None) -> str | None:
    """Return seconds since the epoch as UTC, RFC 3339.

    None where it is not known, or where the clock was so wrong that no calendar has it.
    """
    if seconds is None or not 0 <= seconds < YEAR_10000:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def seconds_of(moment: str | None) -> float | None:
    """Return the seconds since the epoch of a report's timestamp; None where it is none."""
    try:
        return datetime.fromisoformat(moment).timestamp() if moment else None
    except ValueError:
        return None


def day_and_time(seconds: float | None) -> str:
    """Return ``2026-11-01T08:30:00Z``, or ``unknown``."""
    text = timestamp(seconds)
    return f"{text[:19]}Z" if text else "unknown"
