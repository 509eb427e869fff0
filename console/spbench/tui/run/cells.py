"""Figures as the cells of both tables write them."""

from __future__ import annotations

from spbench.record.number_formatting import number

GOING_ON = ("running", "waiting")
"""The statuses of cases that have no verdict yet."""


def figure(value: float | None) -> str:
    """Return a value in three figures, zeros kept so that points stand below each other."""
    if value is None:
        return ""
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 else number(value)
