"""``64..1024 *2``: values from one to another, by a factor or by a step."""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException

MAX_VALUES = 1000
"""How many values a swept parameter may take."""

RANGE_SYNTAX = "write FIRST..LAST *FACTOR or FIRST..LAST +STEP"

_RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)\s*(?:([*+])\s*(\S+)\s*)?")
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def split_range(text: str) -> tuple[str, str, str, str] | None:
    """Return first, last, ``*`` or ``+``, and by how much; None where the text is no range."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last, how, by = found.groups()
    return first, last, how or "+", by or "1"


def parse_decimal(text: str) -> Decimal:
    """Return a number as it is written.

    Raises:
        ValueError: It is none.
    """
    try:
        read = Decimal(text)
    except DecimalException:
        raise ValueError(f"{text!r} is no number; {RANGE_SYNTAX}") from None
    if not read.is_finite():
        raise ValueError(f"{text!r} is no finite number; {RANGE_SYNTAX}")
    return read


def expand_range(first: Decimal, last: Decimal, how: str, by: Decimal) -> list[Decimal]:
    """Return the numbers from ``first`` up to ``last``, which is among them where it is met.

    Raises:
        ValueError: They do not rise, or are more than `MAX_VALUES`.
    """
    rises = by > 0 if how == "+" else by > 1 and first > 0
    if last < first or not rises:
        raise ValueError(f"{first}..{last} {how}{by} does not rise from its first to its last")
    found = [first]
    while (after := _next(found[-1], how, by)) is not None and after <= last:
        found.append(after)
        if len(found) > MAX_VALUES:
            raise ValueError(f"{first}..{last} {how}{by} makes more than {MAX_VALUES} values")
    return found


def _next(value: Decimal, how: str, by: Decimal) -> Decimal | None:
    try:
        return value + by if how == "+" else value * by
    except DecimalException:  # greater than any number
        return None


def format_bytes(count: int) -> int | str:
    """Return a number of bytes in the largest unit that divides it: ``64KiB``."""
    for unit, size in _UNITS:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return count
