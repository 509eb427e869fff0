"""Sparklines: a few values in a few cells, each a bar from nothing to the most."""

from __future__ import annotations

from collections.abc import Iterable

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Iterable[float], width: int, most: float | None = None) -> str:
    """Return the last values as bars, the newest at the right, padded to so many cells.

    Args:
        values: The values, none below 0.
        width: The cells.
        most: The value of a full bar; None: the largest that is shown.
    """
    shown = list(values)[-width:]
    top = max(shown, default=0.0) if most is None else most
    if top <= 0:
        return (BLOCKS[0] * len(shown)).rjust(width)
    steps = (int(value / top * len(BLOCKS)) for value in shown)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, step)] for step in steps).rjust(width)
