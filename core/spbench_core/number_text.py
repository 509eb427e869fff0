"""Numbers in text: parse whole numbers, and format durations and counts."""

from __future__ import annotations

import math

MAX_DIGITS = 250
"""Digits of the longest whole number, in any base.

A number with this many digits fits a float, also in base 16. Python raises ValueError if it
converts more than 4300 decimal digits to or from text, so that a longer one could not even be
named in a message.
"""
_UNITS = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))


class TooManyDigitsError(ValueError):
    """A number of more than `MAX_DIGITS` digits."""

    def __init__(self) -> None:
        super().__init__(f"the number has more than {MAX_DIGITS} digits")


def parse_whole(text: str, base: int = 10) -> int:
    """Parse a whole number.

    Raises:
        TooManyDigitsError: It is longer than `MAX_DIGITS`.
        ValueError: The text is not a whole number.
    """
    if len(text) > MAX_DIGITS + 1:  # one for a sign
        raise TooManyDigitsError
    return int(text, base)


def format_duration(seconds: float) -> str:
    """Return a time with three digits and a fitting unit: ``28.2 us`` or ``27.2 s``."""
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:g} s"
    rounded = float(f"{abs(seconds):.3g}")  # 999.6 us is 1.00 ms
    scale, name = next((unit for unit in reversed(_UNITS) if rounded >= unit[0]), _UNITS[0])
    digits = max(0, 2 - math.floor(math.log10(rounded / scale * (1 + 1e-12))))
    return f"{seconds / scale:.{digits}f} {name}"


def format_quantity(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 error`` or ``3 errors``; ``plural`` if an s is not enough."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"
