"""Plain scalars by the YAML 1.2 core schema."""

from __future__ import annotations

import re

from spbench_core.number_text import parse_whole

Scalar = None | bool | int | float | str

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(
    ("false", "False", "FALSE"), False
)
_INT = re.compile(r"[-+]?[0-9]+")
_BASED = {"0o": (re.compile(r"0o[0-7]+"), 8), "0x": (re.compile(r"0x[0-9a-fA-F]+"), 16)}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = {".nan", ".NaN", ".NAN"}


def parse_scalar(text: str) -> Scalar:
    """Return the value of a plain scalar by the YAML 1.2 core schema.

    Raises:
        TooManyDigitsError: It is a whole number of more than `MAX_DIGITS` digits.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return parse_whole(text)
    if text[:2] in _BASED:
        pattern, base = _BASED[text[:2]]
        return parse_whole(text[2:], base) if pattern.fullmatch(text) else text
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return float("nan") if text in _NAN else text
