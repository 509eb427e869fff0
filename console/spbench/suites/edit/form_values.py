"""Texts of a form's fields, read as YAML reads them, refused with the loader's own sentence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, DecimalException
from typing import Any

from spbench.errors import UsageError
from spbench.suites.edit.fields import Field
from spbench.suites.edit.writing import format_bytes, format_flow, format_scalar
from spbench.suites.expression import ExpressionError, parse_expression
from spbench.suites.parameters import read_value
from spbench.suites.wording import find_shape_error
from spbench.suites.yaml_nodes import YamlError, parse_scalar, parse_yaml
from spbench_core.catalog.parameters import LIST_KINDS

_MAPPING = "write {NAME: VALUE, ...}, in brackets where there are several"
_RANGED = ("int", "float", "pair", "bytes")


def parse_text(field: Field, text: str) -> Any:
    """Return what is typed as it is to stand in a suite.

    Raises:
        UsageError: The loader would refuse it; this is its sentence.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    text = text.strip()
    if not text:
        raise _empty(field)
    if field.kind == "lines" and field.param is not None:
        return _checked(field, lines)  # blanks at the ends are a pattern's own
    if field.kind == "lines":
        return _checked(field, [line.strip() for line in text.splitlines() if line.strip()])
    if field.kind == "env":
        return _checked(field, _variables(field, text))
    if field.kind == "words":
        return _checked(field, _words(field, text))
    if field.kind == "data":
        values = _items(field, text, _MAPPING)
        if len(values) != 1:
            raise UsageError(f"{field.name}: {text!r} are several values; {_MAPPING}")
        return _checked(field, values[0])
    if field.kind in LIST_KINDS:
        return _checked(field, [_scalar(field, part.strip()) for part in text.split(",")])
    if field.kind == "keys" and text.startswith("{"):
        (value,) = _items(field, text, "write {KEY: VALUE, ...}")
        return _checked(field, value)
    return _checked(field, text if field.kind in ("text", "keys") else _scalar(field, text))


def format_text(field: Field, value: Any) -> str:
    """Return a value of a suite as one would type it for `read_text`."""
    if field.kind == "data" or (field.kind == "keys" and isinstance(value, Mapping)):
        return value if isinstance(value, str) else format_flow(value)
    if field.kind == "words" and isinstance(value, list):
        return shlex.join(map(str, value))
    if isinstance(value, Mapping):
        return "\n".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ("\n" if field.kind == "lines" else ", ").join(map(str, value))
    return value if isinstance(value, str) else format_scalar(value)


def parse_sweep(field: Field, text: str) -> list[Any]:
    """Return the values of a sweep as they are to stand in a suite.

    ``64, 128, 256`` are values; ``64..1024 *2`` and ``1..9 +2`` are values in short.

    Raises:
        UsageError: The loader would refuse one of them, or they are none or too many.
    """
    if not field.can_sweep:
        raise UsageError(f"{field.name} takes one value; only parameters and np can be swept")
    values = [value for item in _items(field, text) for value in _expanded(field, item)]
    if not values:
        raise _empty(field)
    if len(values) > MAX_VALUES:
        most = f"a sweep has at most {MAX_VALUES}"
        raise UsageError(f"{field.name}: these are {len(values)} values; {most}")
    return values


def format_sweep(values: Iterable[Any]) -> str:
    """Return the values of a sweep as one would type them for `read_sweep`."""
    return ", ".join(map(format_flow, values))


def _empty(field: Field) -> UsageError:
    return UsageError(f"{field.name} is empty: give it a value or leave it out")


def _scalar(field: Field, text: str) -> Any:
    try:
        return parse_scalar(text)
    except ValueError:
        raise UsageError(f"{field.name}: the number has too many digits") from None


def _words(field: Field, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{field.name}: {text!r} cannot be split into words: {error}") from None


def _variables(field: Field, text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "=" not in line:
            raise UsageError(f"{field.name}: {line!r} is no NAME=VALUE")
    return {name.strip(): value for name, _, value in (line.partition("=") for line in lines)}


def _checked(field: Field, value: Any) -> Any:
    """Return a value once the loader takes it, a whole number as one.

    Raises:
        UsageError: It does not.
    """
    if not field.path:
        read = _read(field, value)
        return read if field.kind == "int" else value
    *above, name = field.path[1:]
    part = {name: value}
    for key in reversed(above):
        part = {key: part}
    case = {"name": "case", "benchmark": "benchmark"}
    suite = {"launch": part} if field.path[0] == "launch" else {"cases": [case | part]}
    if wrong := find_shape_error(**suite):
        raise UsageError(wrong)
    if field.path[1:2] == ("expect",) and isinstance(value, str):
        _check_limit(field, value)
    return value


def _check_limit(field: Field, text: str) -> None:
    try:
        parse_expression(text)
    except ExpressionError as error:
        raise UsageError(f"{field.name} is no limit: {error}") from None


def _read(field: Field, value: Any) -> Any:
    """Return a value of a parameter or of np in its own type."""
    try:
        return read_value(field.param, value).value
    except ValueError as error:
        raise UsageError(str(error)) from None


def _items(
    field: Field, text: str, how: str = "write values with commas between, or FIRST..LAST *FACTOR"
) -> list[Any]:
    try:
        document = parse_yaml(f"[{text}]")
    except YamlError:
        document = None
    if document is None or document.problems or not isinstance(document.root.content, list):
        raise UsageError(f"{field.name}: {text.strip()!r} cannot be read; {how}")
    return list(document.root.data)


def _expanded(field: Field, item: Any) -> list[Any]:
    parts = split_range(item) if isinstance(item, str) and field.kind in _RANGED else None
    if parts is None:
        return [_checked(field, item)]
    first, last, how, by = parts
    ends = [_read(field, _scalar(field, word)) for word in (first, last)]
    try:
        least, most = (parse_decimal(str(end)) for end in ends)
        amount = parse_decimal(_step(field, by) if how == "+" else by)
        numbers = expand_range(least, most, how, amount)
    except ValueError as error:
        raise UsageError(f"{field.name}: {error}") from None
    return [_checked(field, _value(field, number)) for number in numbers]


def _step(field: Field, by: str) -> str:
    """Return a step as a number; one of bytes may have a unit, and be below the least value."""
    if field.kind != "bytes" or field.param is None:
        return by
    return str(replace(field.param, minimum=None, maximum=None).read(by))


def _value(field: Field, number: Decimal) -> int | float | str:
    whole = number == number.to_integral_value()
    if field.kind == "bytes" and whole:
        return format_bytes(int(number))
    return int(number) if whole and field.kind != "float" else float(number)


MAX_VALUES = 1000
"""How many values a swept parameter may take."""

RANGE_SYNTAX = "write FIRST..LAST *FACTOR or FIRST..LAST +STEP"

_RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)\s*(?:([*+])\s*(\S+)\s*)?")


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
