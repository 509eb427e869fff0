"""Text made to take an exact number of a terminal's cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rich.cells import cell_len, chop_cells, set_cell_size

from spbench.record.number_formatting import clean

Align = Literal["left", "right"]
_CUT = "…"


def cell_width(text: str) -> int:
    """Return how many cells of a terminal the text takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, align: Align = "left") -> str:
    """Return the text in exactly so many cells; what is cut off is marked by an ellipsis."""
    if width <= 0:
        return ""
    text = clean(text)
    size = cell_width(text)
    if size > width:
        return set_cell_size(text, width - 1) + _CUT
    pad = " " * (width - size)
    return pad + text if align == "right" else text + pad


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most so many cells, at least one."""
    text = clean(text)
    if text.isascii():
        return [text[start : start + width] for start in range(0, max(1, len(text)), width)]
    return chop_cells(text, width)


def join_fitting(parts: Iterable[str], width: int) -> str:
    """Return as many of the phrases as fit, the first ones first; empty ones are left out."""
    first, *rest = [clean(part) for part in parts if part] or [""]
    line = first
    for part in rest:
        if cell_width(line) + 2 + cell_width(part) > width:
            break
        line += f", {part}"
    return line if cell_width(line) <= width else fit(line, width)
