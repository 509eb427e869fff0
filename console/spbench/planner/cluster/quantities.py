"""Sizes, rates and times as people write them: ``16GB``, ``25Gbit/s``, ``5us``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation, Overflow

_DECIMAL = {"": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
_BINARY = {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGT", 1)}
BYTES = {f"{prefix}B": Decimal(factor) for prefix, factor in (_DECIMAL | _BINARY).items()}
RATES = {f"{unit}/s": factor for unit, factor in BYTES.items()} | {
    f"{prefix}bit/s": Decimal(factor) / 8 for prefix, factor in _DECIMAL.items()
}
SECONDS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}

_WRITTEN = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]+)")


def quantity(value: object, units: Mapping[str, Decimal]) -> float:
    """Return a quantity in the unit of factor 1; a bare number is in that unit.

    Raises:
        ValueError: It is none, or not finite.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _float(value)
    else:
        number = _with_unit(value, units)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of over 308 digits
        return math.inf


def _with_unit(value: object, units: Mapping[str, Decimal]) -> float:
    found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if found is not None and found[2] in units:
            return float(Decimal(found[1]) * units[found[2]])
    except InvalidOperation:
        pass  # several points, say
    except Overflow:
        return math.inf
    known = f" with one of the units {', '.join(units)}" if units else ""
    raise ValueError(f"{value!r} is no number{known}")
