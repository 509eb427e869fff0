"""Times as the cells of both tables write them."""

from __future__ import annotations

from spbench.record.number_formatting import format_time


def format_time_cell(ms: float | None) -> str:
    """Return a time given in ms with its unit; nothing if there is none."""
    return "" if ms is None else format_time(ms)
