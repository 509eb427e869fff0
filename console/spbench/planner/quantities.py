"""Sizes, rates and times as people write them: ``16GB``, ``25Gbit/s``, ``5us``."""

from __future__ import annotations

import math
import re

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_PREFIXES = _DECIMAL | _BINARY
BYTES = {f"{prefix}B": factor for prefix, factor in _PREFIXES.items()}
RATES = {f"{unit}/s": factor for unit, factor in BYTES.items()} | {
    f"{prefix}bit/s": factor / 8.0 for prefix, factor in _DECIMAL.items()
}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

_WRITTEN = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]+)")


def quantity(value: object, units: dict[str, float]) -> float:
    """Return a quantity in the unit of factor 1; a bare number is in that unit.

    Raises:
        ValueError: It is none, or not finite.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None or found[2] not in units:
            known = ", ".join(sorted(units, key=lambda unit: (units[unit], unit)))
            raise ValueError(f"{value!r} is no number with one of the units {known}")
        number = float(found[1]) * units[found[2]]
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number
