"""Parameters of benchmarks: how each is read, bounded and named on a command line."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spbench_core.layout.tiles import parse_pair
from spbench_core.number_text import TooManyDigitsError, parse_whole

ParamKind = Literal[
    "int",
    "float",
    "bool",
    "choice",
    "pair",
    "bytes",
    "bytes_list",
    "choices",
    "ints",
    "text",
    "words",
    "lines",
    "data",
]
LIST_KINDS = frozenset({"bytes_list", "choices", "ints", "words"})
"""Kinds with a list as their value that can be written on one line."""
UNSWEPT_KINDS = frozenset({"lines", "data"})
"""Kinds that cannot be swept: lists of lines, mappings and lists of mappings."""
_MAX_LEVELS = 8
"""Levels of nested mappings and lists."""
Params = dict[str, Any]
"""Parameters of a case by name."""

_BYTES_BY_UNIT = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_BYTES_BY_UNIT |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_TRUE = {"true", "on", "yes", "1"}
_FALSE = {"false", "off", "no", "0"}


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a benchmark.

    Attributes:
        name: Its name.
        kind: The kind of its values.
        default: Its default; None: the benchmark derives it from other parameters.
        help: A description.
        minimum: The least number.
        maximum: The greatest number.
        choices: The words that a ``choice`` or ``choices`` accepts.
        aliases: Names that a reference script has for it.
        spellings: Other spellings of its choices.
    """

    name: str
    kind: ParamKind
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)

    @property
    def flag(self) -> str:
        """Its spelling on a command line, ``--image-size``."""
        return "--" + self.name.replace("_", "-")

    def read(self, value: Any) -> Any:
        """Return the value in the parameter's own type.

        Raises:
            ValueError: The value is of another kind or out of bounds; the message has the reason.
        """
        parse_by_kind = {
            "int": _read_int,
            "float": _read_float,
            "bool": _read_bool,
            "choice": self._read_choice,
            "pair": self._read_pair,
            "bytes": read_bytes,
            "bytes_list": _read_bytes_list,
            "choices": self._read_choices,
            "ints": _read_ints,
            "text": _read_text,
            "words": _read_words,
            "lines": _read_lines,
            "data": _read_data,
        }[self.kind]
        parsed = parse_by_kind(value)
        for number in parsed if isinstance(parsed, list) else [parsed]:
            self._check_bounds(number)
        return parsed

    def format_argument(self, value: Any) -> str:
        """Return a value as an argument of a command line, which `read` accepts."""
        if isinstance(value, bool):
            return str(value).lower()
        if self.kind == "data":
            return json.dumps(value)
        if self.kind == "words":
            return shlex.join(value)
        if isinstance(value, (list, tuple)):
            return ("\n" if self.kind == "lines" else ",").join(map(str, value))
        return str(value)

    as_word = format_argument  # plug-ins made for API version 1 use this name

    def _check_bounds(self, number: Any) -> None:
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            if self.minimum is not None and number < self.minimum:
                raise ValueError(f"{number} is below the least value, {self.minimum:.15g}")
            if self.maximum is not None and number > self.maximum:
                raise ValueError(f"{number} is above the greatest value, {self.maximum:.15g}")

    def _read_choice(self, value: Any) -> str:
        text = self.spellings.get(str(value), str(value))
        if text not in self.choices:
            raise ValueError(f"{str(value)!r} is none of {', '.join(self.choices)}")
        return text

    def _read_choices(self, value: Any) -> list[str]:
        choices = [self._read_choice(item) for item in _split_items(value)]
        for choice in choices:
            if choices.count(choice) > 1:
                raise ValueError(f"{choice} is listed twice")
        return choices

    def _read_pair(self, value: Any) -> int | str:
        if isinstance(value, (bool, float)) or not isinstance(value, (int, str)):
            raise ValueError(f"{value!r} is neither N nor RxC")
        minimum = 1 if self.minimum is None else int(self.minimum)
        rows, cols = parse_pair(value, minimum)
        for number in (rows, cols):
            self._check_bounds(number)
        return f"{rows}x{cols}" if "x" in str(value).lower() else rows

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a value in a suite file."""
        schema: dict[str, Any] = {"description": self.help}
        if self.default is not None:
            schema["default"] = self.default
        if self.kind == "choice":
            boolean_choices = [value for value in (True, False) if str(value) in self.spellings]
            return schema | {"enum": [*self.choices, *self.spellings, *boolean_choices]}
        if self.kind == "bool":
            return schema | {"enum": [True, False, "on", "off", "yes", "no"]}
        if self.kind == "choices":
            choice_schema = {"enum": [*self.choices, *self.spellings]}
            list_schema = {"type": "array", "items": choice_schema}
            return schema | {"anyOf": [choice_schema, {"type": "string"}, list_schema]}
        types_by_kind: dict[str, Any] = {
            "int": ["integer", "string"],
            "float": "number",
            "pair": ["integer", "string"],
            "bytes": ["integer", "string"],
            "bytes_list": ["array", "string", "integer"],
            "ints": ["array", "string", "integer"],
            "text": ["array", "string", "integer"],
            "words": ["array", "string", "integer"],
            "lines": ["array", "string", "integer"],
            "data": ["object", "array", "string"],
        }
        schema["type"] = types_by_kind[self.kind]
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        return schema


def _read_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is not a whole number")
    try:
        return parse_whole(value) if isinstance(value, str) else int(value)
    except TooManyDigitsError:
        raise
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a whole number") from None


def _read_float(value: Any) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _read_bool(value: Any) -> bool:
    text = str(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def read_bytes(value: Any) -> int:
    """Parse a number of bytes: 65536, ``64KiB`` or ``1MB``.

    Raises:
        ValueError: The value is not a number of bytes.
    """
    match = re.fullmatch(r"\s*(\d+)\s*([kmg]?i?b?)\s*", str(value), re.IGNORECASE)
    unit = match[2].upper() if match else "?"
    unit += "B" if unit and not unit.endswith("B") else ""
    if match is None or unit not in _BYTES_BY_UNIT:
        raise ValueError(f"{value!r} is no number of bytes (write 65536, 64KiB or 1MB)")
    return parse_whole(match[1]) * _BYTES_BY_UNIT[unit]


def _read_bytes_list(value: Any) -> list[int]:
    return [read_bytes(item) for item in _split_items(value)]


def _read_ints(value: Any) -> list[int]:
    return [_read_int(item) for item in _split_items(value)]


def _split_items(value: Any) -> list[Any]:
    items = value if isinstance(value, list) else str(value).split(",")
    if not items:
        raise ValueError("the list is empty")
    return [item.strip() if isinstance(item, str) else item for item in items]


def _read_text(value: Any) -> str:
    """Return a text; a list becomes ``a,b,c``."""
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, (bool, float)) or not isinstance(item, (int, str)) for item in items):
        raise ValueError(f"{value!r} is no text")
    text = ",".join(str(item).strip() for item in items)
    if not text:
        raise ValueError("the text is empty")
    return text


def _read_words(value: Any) -> list[str]:
    """Return a list of arguments; a text is split like in a shell, but no shell runs."""
    if not isinstance(value, str):
        return _read_texts(value)
    try:
        args = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{value!r} cannot be split into words: {error}") from None
    if not args:
        raise ValueError("the list is empty")
    return args


def _read_lines(value: Any) -> list[str]:
    """Return a list of lines; a text is split into its lines that are not blank."""
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    return _read_texts(value)


def _read_texts(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    if not items:
        raise ValueError("the list is empty")
    for item in items:
        if isinstance(item, (bool, float)) or not isinstance(item, (int, str)):
            raise ValueError(f"{item!r} is no text (put it in quotes)")
    return [str(item) for item in items]


def _read_data(value: Any) -> Any:
    """Return a mapping or a list of mappings, with text keys; texts are JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_int=parse_whole)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{value!r} is no JSON: {error}") from None
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, Mapping) for item in items):
        raise ValueError("it is neither a mapping nor a list of mappings")
    return _to_plain(value, _MAX_LEVELS)


def _to_plain(value: Any, levels: int) -> Any:
    """Copy nested data into dicts and lists of at most ``levels`` levels."""
    if levels == 0:
        raise ValueError(f"it has more than {_MAX_LEVELS} levels")
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_plain(item, levels - 1) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise ValueError(f"{value!r} is neither text nor a number")


# Plug-ins made for API version 1 use these names.
Kind = ParamKind
LISTS = LIST_KINDS
UNSWEPT = UNSWEPT_KINDS
