"""What cells of both tables have in common: statuses and figures."""

from __future__ import annotations

from spbench.record.figures import GLYPHS, number
from spbench.tui.widgets.table_columns import Cell

GOING_ON = {"running": "…", "waiting": "·"}
"""The signs of cases that have no verdict yet."""


def signed(status: str) -> str:
    """Return a status as glyph and word."""
    return f"{GLYPHS.get(status) or GOING_ON.get(status, '!')} {status}"


def status_cell(status: str) -> Cell:
    """Return a status as glyph and word, in its colour."""
    return Cell(signed(status), status)


def figure(value: float | None) -> str:
    """Return a value in three figures, zeros kept so that points stand below each other."""
    if value is None:
        return ""
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 else number(value)
