"""How figures and verdicts are written, in every view alike."""

from __future__ import annotations

GLYPHS = {
    "passed": "✓",
    "failed": "✗",
    "error": "✗",
    "timeout": "✗",
    "cancelled": "-",
    "skipped": "-",
}
"""A verdict's sign; its word always stands beside it."""


def number(value: float) -> str:
    """Return a value in three figures, without an exponent as long as it is readable."""
    if value == 0 or 1e-3 <= abs(value) < 1e3:
        return f"{value:.3g}"
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.2e}"
