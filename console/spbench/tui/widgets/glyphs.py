"""Glyphs of numbers: sparklines, and slowness compared with the median."""

from __future__ import annotations

import math
from collections.abc import Iterable

from spbench.record.number_formatting import format_factor
from spbench.tui.widgets.dots import Piece

BLOCKS = "▁▂▃▄▅▆▇"
"""Bars by height; none fills its cell, so that there is a gap between rows of a table."""
PROBLEM_SIGN = "✗"
"""Before an error message."""
_STEPS = "░▒▓█"
_STEPS_ASCII = "-+*#"
_FAILED = "✗"
_UNKNOWN = "·"
_FAILED_ASCII = "!"
_UNKNOWN_ASCII = "."
_SLOWNESS_WORDS = ("normal", "a bit slow", "slow", "very slow")
_LEGEND_GAP = "  "


def render_sparkline(
    values: Iterable[float], width: int, maximum: float | None = None, *, minimum: float = 0.0
) -> str:
    """Return the last values as bars, the newest at the right.

    Args:
        values: Values, usually of at least ``minimum``.
        width: Number of cells; fewer values are padded at the left.
        maximum: The value of a full bar. Default: the largest value shown.
        minimum: The value of the lowest bar.
    """
    shown = list(values)[-width:]
    full_bar = max(shown, default=0.0) if maximum is None else maximum
    if full_bar <= minimum:
        return (BLOCKS[0] * len(shown)).rjust(width)
    shares = ((value - minimum) / (full_bar - minimum) for value in shown)
    bar_heights = (int(max(0.0, min(share, 1.0)) * len(BLOCKS)) for share in shares)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, height)] for height in bar_heights).rjust(width)


def compute_slowness_step(ratio: float, notable: float) -> int:
    """Return how slow a ratio is in four steps, 0 (near the median) to 3.

    Step 1 begins at a third of the way from 1 to ``notable``, step 2 at ``notable``, step 3 at
    three times that excess.

    Args:
        ratio: Time divided by the median time.
        notable: The ratio from which slowness is reported; above 1.
    """
    excess = (ratio - 1) / (notable - 1)
    if excess >= 3:
        return 3
    if excess >= 1:
        return 2
    return 1 if excess >= 1 / 3 else 0


def cap_brief_slowness(ratio: float, notable: float) -> float:
    """Return a ratio for the mark of a part that is slow too briefly.

    Its mark is at most that of "a bit slow".
    """
    return min(ratio, math.nextafter(notable, 1.0))


def choose_slowness_mark(
    ratio: float | None, notable: float, *, failed: bool = False, ascii: bool = False
) -> tuple[str, str]:
    """Return the glyph of a ratio and the name of its style in a chart.

    A darker glyph is slower, ``·`` is an unknown ratio, ``✗`` a failure.
    """
    if failed:
        return _FAILED_ASCII if ascii else _FAILED, "failed"
    if ratio is None:
        return _UNKNOWN_ASCII if ascii else _UNKNOWN, "none"
    step = compute_slowness_step(ratio, notable)
    return (_STEPS_ASCII if ascii else _STEPS)[step], f"step-{step}"


def render_slowness_legend(
    width: int, notable: float | None = None, *, unknown: str = "not compared", ascii: bool = False
) -> list[Piece]:
    """Return the coloured glyphs of `choose_slowness_mark`, each with its meaning.

    Glyphs that do not fit into the width are left out.

    Args:
        width: The cells of the line.
        notable: The ratio from which slowness is reported; with it, the meanings are the limits.
        unknown: The meaning of an unknown ratio.
        ascii: Whether to use only ASCII characters.
    """
    steps = _STEPS_ASCII if ascii else _STEPS
    marks = [(glyph, f"step-{step}") for step, glyph in enumerate(steps)]
    marks.append((_UNKNOWN_ASCII if ascii else _UNKNOWN, "none"))
    meanings = _SLOWNESS_WORDS if notable is None else _describe_limits(notable, ascii)
    pieces: list[Piece] = []
    used_width = 0
    for (glyph, style), meaning in zip(marks, (*meanings, unknown), strict=True):
        gap = _LEGEND_GAP if pieces else ""
        used_width += len(gap) + len(f"{glyph} {meaning}")
        if used_width > width:
            break
        pieces += [(gap, "text"), (glyph, style), (f" {meaning}", "text")]
    return pieces


def _describe_limits(notable: float, ascii: bool) -> tuple[str, ...]:
    """Return the ratios from which the steps of `compute_slowness_step` begin."""
    sign = ">=" if ascii else "≥"
    excess = notable - 1
    return (
        "normal",
        f"{sign}{1 + excess / 3:.3g}x",
        f"slow {sign}{notable:.3g}x",
        f"{sign}{1 + 3 * excess:.3g}x",
    )


def format_ratio(ratio: float) -> str:
    """Return a ratio with its meaning: ``1.8x the median``."""
    return f"{format_factor(ratio)} the median"
