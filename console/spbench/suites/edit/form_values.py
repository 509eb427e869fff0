"""Parser of the texts in a form's fields, with the loader's messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, DecimalException
from typing import Any, NamedTuple

from spbench.errors import UsageError
from spbench.suites.edit.fields import Field
from spbench.suites.edit.yaml_format import find_plain_scalar, format_flow, format_scalar
from spbench.suites.expressions.expression import ExpressionError, parse_expression
from spbench.suites.parameters import read_value
from spbench.suites.validation_messages import find_shape_error
from spbench.suites.yaml_nodes import YamlError, parse_scalar, parse_yaml
from spbench_core.catalog.parameters import LIST_KINDS, Param
from spbench_core.number_text import format_bytes

MAX_VALUES = 1000
"""The limit of values of a swept parameter."""
RANGE_SYNTAX = "write FIRST..LAST *FACTOR or FIRST..LAST +STEP"
_RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)\s*(?:([*+])\s*(\S+)\s*)?")
_MAPPING = "write {NAME: VALUE, ...}, in brackets if there are several"
_RANGED = ("int", "float", "pair", "bytes")


def parse_text(field: Field, text: str) -> Any:
    """Return the value in a suite for the text of a field.

    Raises:
        UsageError: The loader would reject it; the message is that of the loader.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    text = text.strip()
    if not text:
        raise _make_empty_error(field)
    if field.kind == "lines" and field.param is not None:
        return _validate(field, lines)  # blanks at the ends belong to a pattern
    if field.kind == "lines":
        return _validate(field, [line.strip() for line in text.splitlines() if line.strip()])
    if field.kind == "env":
        return _validate(field, _parse_variables(field, text))
    if field.kind == "words":
        return _validate(field, _parse_words(field, text))
    if field.kind == "data":
        mappings = _parse_items(field, text, _MAPPING)
        if len(mappings) != 1:
            raise UsageError(f"{field.name}: {text!r} has several values; {_MAPPING}")
        return _validate(field, mappings[0])
    if field.kind in LIST_KINDS:
        return _validate(
            field, [_parse_scalar(field, item_text.strip()) for item_text in text.split(",")]
        )
    if field.kind == "keys" and text.startswith("{"):
        (value,) = _parse_items(field, text, "write {KEY: VALUE, ...}")
        return _validate(field, value)
    if field.kind == "text" and field.param is not None:
        return _validate(field, _parse_param_text(field.param, text))
    return _validate(field, text if field.kind in ("text", "keys") else _parse_scalar(field, text))


def _parse_param_text(param: Param, text: str) -> Any:
    """Return a text, or the number that the parameter reads as the same text."""
    value = find_plain_scalar(text)
    try:
        return value if param.read(value) == param.read(text) else text
    except ValueError:
        return text


def format_text(field: Field, value: Any) -> str:
    """Return the text of a value of a suite, for `parse_text`."""
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
    """Return the values in a suite for the text of a sweep.

    The text is a list such as ``64, 128, 256``, which may have brackets, or a range such as
    ``64..1024 *2`` or ``1..9 +2``.

    Raises:
        UsageError: The loader would reject a value, or there are no values or too many.
    """
    if not field.can_sweep:
        raise UsageError(f"{field.name} takes one value; only parameters and np can be swept")
    items = _parse_items(field, text)
    if field.kind not in LIST_KINDS and len(items) == 1 and isinstance(items[0], list):
        items = items[0]  # with the brackets of YAML
    values = [value for item in items for value in _expand_range_text(field, item)]
    if not values:
        raise _make_empty_error(field)
    if len(values) > MAX_VALUES:
        limit = f"a sweep has at most {MAX_VALUES}"
        raise UsageError(f"{field.name}: these are {len(values)} values; {limit}")
    return values


def format_sweep(values: Iterable[Any]) -> str:
    """Return the text of the values of a sweep, for `parse_sweep`."""
    return ", ".join(map(format_flow, values))


def _make_empty_error(field: Field) -> UsageError:
    return UsageError(f"{field.name} is empty: give it a value or leave it out")


def _parse_scalar(field: Field, text: str) -> Any:
    try:
        return parse_scalar(text)
    except ValueError:
        raise UsageError(f"{field.name}: the number has too many digits") from None


def _parse_words(field: Field, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{field.name}: {text!r} cannot be split into words: {error}") from None


def _parse_variables(field: Field, text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "=" not in line:
            raise UsageError(f"{field.name}: {line!r} is not NAME=VALUE")
    return {name.strip(): value for name, _, value in (line.partition("=") for line in lines)}


def _validate(field: Field, value: Any) -> Any:
    """Return a value if the loader accepts it; a whole number as an int.

    Raises:
        UsageError: The loader would reject it.
    """
    if field.param is not None or not field.path:
        parsed = _parse_param(field, value)
        return parsed if field.kind == "int" else value
    *parent_keys, name = field.path[1:]
    nested_value = {name: value}
    for key in reversed(parent_keys):
        nested_value = {key: nested_value}
    case = {"name": "case", "benchmark": "benchmark"}
    part_by_root = {"case": {"cases": [case | nested_value]}, "suite": nested_value}
    suite = part_by_root.get(field.path[0], {field.path[0]: nested_value})
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


def _parse_param(field: Field, value: Any) -> Any:
    """Parse a value of a parameter or of np."""
    try:
        return read_value(field.param, value).value
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parse_items(
    field: Field, text: str, hint: str = "write values with commas between, or FIRST..LAST *FACTOR"
) -> list[Any]:
    try:
        document = parse_yaml(f"[{text}]")
    except YamlError:
        document = None
    if document is None or document.problems or not isinstance(document.root.content, list):
        raise UsageError(f"{field.name}: {text.strip()!r} cannot be read; {hint}")
    return list(document.root.data)


def _expand_range_text(field: Field, list_item: Any) -> list[Any]:
    range_parts = (
        split_range(list_item) if isinstance(list_item, str) and field.kind in _RANGED else None
    )
    if range_parts is None:
        return [_validate(field, list_item)]
    first, last, sign, step = range_parts
    end_values = [_parse_param(field, _parse_scalar(field, text)) for text in (first, last)]
    try:
        start, end = (parse_decimal(str(end_value)) for end_value in end_values)
        step_amount = parse_decimal(_parse_step(field, step) if sign == "+" else step)
        numbers = expand_range(start, end, sign, step_amount)
    except ValueError as error:
        raise UsageError(f"{field.name}: {error}") from None
    return [_validate(field, _convert_number(field, number)) for number in numbers]


def _parse_step(field: Field, text: str) -> str:
    """Return the text of a step; bytes may have a unit, and any size."""
    if field.kind != "bytes" or field.param is None:
        return text
    return str(replace(field.param, minimum=None, maximum=None).read(text))


def _convert_number(field: Field, number: Decimal) -> int | float | str:
    is_whole = number == number.to_integral_value()
    if field.kind == "bytes" and is_whole:
        return format_bytes(int(number))
    return int(number) if is_whole and field.kind != "float" else float(number)


class RangeParts(NamedTuple):
    """The texts of a range: its ends, ``*`` or ``+``, and the amount of a step."""

    first: str
    last: str
    sign: str
    amount: str


def split_range(text: str) -> RangeParts | None:
    """Return the parts of a range, or None for another text."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, sign, amount = match.groups()
    return RangeParts(first, last, sign or "+", amount or "1")


def parse_decimal(text: str) -> Decimal:
    """Parse a finite decimal number.

    Raises:
        ValueError: The text is not a finite number.
    """
    try:
        number = Decimal(text)
    except DecimalException:
        raise ValueError(f"{text!r} is not a number; {RANGE_SYNTAX}") from None
    if not number.is_finite():
        raise ValueError(f"{text!r} is not a finite number; {RANGE_SYNTAX}")
    return number


def expand_range(first: Decimal, last: Decimal, sign: str, amount: Decimal) -> list[Decimal]:
    """Return the numbers from ``first`` to ``last``, inclusive if it is reached.

    Raises:
        ValueError: They do not increase, or are more than `MAX_VALUES`.
    """
    increases = amount > 0 if sign == "+" else amount > 1 and first > 0
    if last < first or not increases:
        raise ValueError(f"{first}..{last} {sign}{amount} does not rise from its first to its last")
    numbers = [first]
    while (number := _compute_next(numbers[-1], sign, amount)) is not None and number <= last:
        numbers.append(number)
        if len(numbers) > MAX_VALUES:
            raise ValueError(f"{first}..{last} {sign}{amount} makes more than {MAX_VALUES} values")
    return numbers


def _compute_next(value: Decimal, sign: str, amount: Decimal) -> Decimal | None:
    try:
        return value + amount if sign == "+" else value * amount
    except DecimalException:  # exceeds the largest Decimal
        return None
