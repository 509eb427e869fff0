"""Slowness against the usual of the same kind, in four steps."""

from __future__ import annotations

from spbench.record.number_formatting import format_factor

_GLYPHS = "░▒▓█"
_ASCII = "-+*#"
_FAILED = "✗"
_NONE = "·"
_FAILED_ASCII = "!"
_NONE_ASCII = "."


def slowness_step(ratio: float, notable: float) -> int:
    """Return 0 for the usual, 1 for a third of the way to notable, 2 for notable, 3 for far more.

    Args:
        ratio: The times that it is slower; 1 is the usual.
        notable: The ratio from which on a reader should be told; above 1.
    """
    excess = (ratio - 1) / (notable - 1)
    return 3 if excess >= 3 else 2 if excess >= 1 else 1 if excess >= 1 / 3 else 0


def slowness_mark(
    ratio: float | None, notable: float, *, failed: bool = False, ascii: bool = False
) -> tuple[str, str]:
    """Return the glyph of a ratio and the word of its style in a chart.

    Darker is slower, ``·`` is not known, ``✗`` has failed.
    """
    if failed:
        return _FAILED_ASCII if ascii else _FAILED, "failed"
    if ratio is None:
        return _NONE_ASCII if ascii else _NONE, "none"
    at = slowness_step(ratio, notable)
    return (_ASCII if ascii else _GLYPHS)[at], f"step-{at}"


def format_ratio(ratio: float) -> str:
    """Return a ratio in words: ``1.8x the median``."""
    return f"{format_factor(ratio)} the median"
