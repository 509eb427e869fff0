"""A time as a share of its limit: how close it comes to what was measured at best."""

from __future__ import annotations


def share_of_limit(time: float | None, limit: float | None) -> float | None:
    """Return the limit over the time, 1 for a time that reaches it; None where one is not known."""
    if time is None or limit is None or time <= 0:
        return None
    return limit / time
