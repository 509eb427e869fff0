"""Timestamps as reports write them."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float | None) -> str | None:
    """Return seconds since the epoch as UTC, RFC 3339."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
