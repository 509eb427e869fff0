"""The format of numbers, verdicts and text, the same in every view."""

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
NOISY = "≈"
"""The sign of times that other work has disturbed."""


def clean(text: str) -> str:
    """Return the text without what would move a terminal's cursor or change its colours."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def printable(text: str) -> str:
    """Return lines without what would move a terminal's cursor: ranks may say anything."""
    return "\n".join(clean(line.expandtabs()) for line in text.splitlines())


def number(value: float) -> str:
    """Return a value in three figures, without an exponent as long as it is readable."""
    size = abs(value)
    if size == 0 or 1e-3 <= size < 999.5:
        return f"{value:.3g}"
    return f"{value:.0f}" if 999.5 <= size < 1e7 else f"{value:.2e}"


def counted(count: int, what: str, plural: str | None = None) -> str:
    """Return ``1 error`` or ``3 errors``."""
    return f"{count} {what}" if count == 1 else f"{count} {plural or f'{what}s'}"
