"""Sizes, rates and times with units: ``16GB``, ``25Gbit/s``, ``5us``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, Overflow
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import core_schema

from spbench.planner.ranges import Range

_DECIMAL = {"": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
_BINARY = {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGT", 1)}
BYTES = {f"{prefix}B": Decimal(factor) for prefix, factor in (_DECIMAL | _BINARY).items()}
RATES = {f"{unit}/s": factor for unit, factor in BYTES.items()} | {
    f"{prefix}bit/s": Decimal(factor) / 8 for prefix, factor in _DECIMAL.items()
}
SECONDS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")}

_NUMBER = r"[0-9.]+(?:[eE][-+]?[0-9]+)?"
_WITH_UNIT = re.compile(rf"({_NUMBER})\s*([A-Za-z/]+)")


@dataclass(frozen=True)
class Quantity:
    """The annotation of a pydantic field that is a quantity in a range."""

    units: Mapping[str, Decimal]
    allowed: Range

    def read(self, value: object, info: ValidationInfo) -> float:
        """Return the quantity.

        Raises:
            ValueError: The value is not a quantity, or out of range.
        """
        number = parse_quantity(value, self.units)
        if not self.allowed.contains(number):
            raise ValueError(f"{info.field_name} must be {self.allowed}, not {value!r}")
        return number

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        number = self.allowed.json_schema()
        units = "|".join(self.units)
        with_unit = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*({units})\s*$"}
        return {"anyOf": [number, with_unit]} if units else number


def parse_quantity(value: object, units: Mapping[str, Decimal]) -> float:
    """Return a quantity in the unit of factor 1; a bare number is in that unit.

    Raises:
        ValueError: The value is not a quantity, or not finite.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _to_float(value)
    else:
        number = _parse_with_unit(value, units)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of over 308 digits
        return math.inf


def _parse_with_unit(value: object, units: Mapping[str, Decimal]) -> float:
    match = _WITH_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if match is not None and match[2] in units:
            return float(Decimal(match[1]) * units[match[2]])
    except InvalidOperation:
        pass  # such as several points
    except Overflow:
        return math.inf
    choices = f" with one of the units {', '.join(units)}" if units else ""
    raise ValueError(f"{value!r} is no number{choices}")
