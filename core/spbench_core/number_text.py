"""Numbers in text: parse whole numbers, and format durations, sizes and counts."""

from __future__ import annotations

import math

MAX_DIGITS = 250
"""Digits of the longest whole number, in any base.

A number with this many digits fits a float, also in base 16. Python raises ValueError if it
converts more than 4300 decimal digits to or from text, so that a longer one could not even be
named in a message.
"""
_TIME_UNITS = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))
_SIZE_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


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
    fitting_units = (unit for unit in reversed(_TIME_UNITS) if rounded >= unit[0])
    unit_seconds, unit_name = next(fitting_units, _TIME_UNITS[0])
    digits = max(0, 2 - math.floor(math.log10(rounded / unit_seconds * (1 + 1e-12))))
    return f"{seconds / unit_seconds:.{digits}f} {unit_name}"


def format_bytes(count: int) -> int | str:
    """Return a number of bytes in the largest unit that divides it: ``64KiB``.

    A number that no unit divides stays a number.
    """
    for unit, size in _SIZE_UNITS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return count


def format_quantity(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 error`` or ``3 errors``; ``plural`` if an s is not enough."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"
