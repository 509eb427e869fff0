"""Formatter of plain data as YAML text, in one style.

Mappings have a line for each key, lists of scalars are in brackets, and text is quoted only if YAML
would read something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from spbench.suites.yaml_nodes import parse_scalar

WIDTH = 100
"""The maximum of columns of a line, unless a value is longer."""

_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+( [A-Za-z0-9_./+-]+)*")
_DASHES = re.compile(r"[-.+]+( .*)?")
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def to_plain(value: Any) -> Any:
    """Return a copy of a value with dicts and lists instead of other containers."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return list(map(to_plain, value)) if isinstance(value, (list, tuple)) else value


def format_scalar(value: bool | int | float | str | None) -> str:
    """Return a scalar in YAML 1.2; text is quoted if it would be read as another type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    return _format_text(value) if isinstance(value, str) else str(value)


def _format_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _DASHES.fullmatch(text) and _is_text(text):
        return text
    # JSON's quoting is valid in YAML, except for characters that YAML reads as line ends.
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", _quote(text))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_text(text: str) -> bool:
    try:
        return isinstance(parse_scalar(text), str)
    except ValueError:
        return False


def format_flow(value: Any) -> str:
    """Return a value on one line, lists and mappings in brackets."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{format_scalar(key)}: {format_flow(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(format_flow, value)) + "]"
    return format_scalar(value)


def find_plain_scalar(text: str) -> bool | int | float | str:
    """Return the number or boolean that YAML spells like a text, or the text.

    It serves where any scalar is read as text, so that the text needs no quotes.
    """
    try:
        value = parse_scalar(text)
    except ValueError:
        return text
    return text if value is None or format_scalar(value) != text else value


def format_key(key: str, value: Any, indent: int, flow: bool = False) -> list[str]:
    """Return the lines of a key with its value, indented by ``indent`` columns.

    A mapping has a line for each of its keys, and so has each mapping of a list. Other lists are in
    brackets. With ``flow`` a value that is short enough is on one line, mappings in braces.
    """
    key_text = " " * indent + format_scalar(key) + ":"
    one_line = f"{key_text} {format_flow(value)}"
    if not value or not isinstance(value, (Mapping, list, tuple)):
        return [one_line]
    is_block = isinstance(value, Mapping) or _lists_mappings(value)
    if flow or not is_block:
        if len(one_line) <= WIDTH:
            return [one_line]
        value_line = " " * (indent + 2) + format_flow(value)
        if len(value_line) <= WIDTH:
            return [key_text, value_line]
    if isinstance(value, Mapping):
        return [key_text, *_format_block(value, indent + 2)]
    if is_block:
        return [key_text, *_format_block_list(value, indent + 2)]
    return [key_text, *_wrap_list(value, indent + 2)]


def _lists_mappings(items: Sequence[Any]) -> bool:
    return all(isinstance(item, Mapping) and item for item in items)


def _format_block(value: Mapping[str, Any], indent: int) -> list[str]:
    return [line for key, item in value.items() for line in format_key(key, item, indent)]


def _format_block_list(items: Sequence[Mapping[str, Any]], indent: int) -> list[str]:
    lines = []
    for item in items:
        first_line, *other_lines = _format_block(item, indent + 2)
        lines += [f"{' ' * indent}- {first_line.lstrip()}", *other_lines]
    return lines


def _wrap_list(items: Sequence[Any], indent: int) -> list[str]:
    """Return a list in brackets over as many lines as it needs."""
    lines = [" " * indent + "["]
    for number, item in enumerate(items, 1):
        item_text = format_flow(item) + ("," if number < len(items) else "]")
        if len(lines[-1]) + 1 + len(item_text) > WIDTH and number > 1:
            lines.append(" " * indent)
        lines[-1] += item_text if number == 1 else f" {item_text}"
    return lines
