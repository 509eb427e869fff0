"""pydantic's errors about the shape of a suite file, in plain sentences at their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from spbench.errors import SuiteError, did_you_mean
from spbench.suites.case import SCHEMA
from spbench.suites.findings import Findings
from spbench.suites.model import Bound, CaseEntry, SuiteFile
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import Document, KeyPath, Mark, Node

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "too_short": "a list with at least one item",
    "string_too_long": "at most {max_length} characters long",
}
_NAME = "letters, digits and . _ - with a letter or digit first"
_ENV_NAME = "letters, digits and _ with no digit first; SPBENCH_... is spbench's own"


def check_shape(data: Mapping[str, Any], findings: Findings) -> SuiteFile | None:
    """Return the suite file as a model, or None after telling ``findings`` what is wrong."""
    try:
        return SuiteFile.model_validate(data)
    except ValidationError as error:
        grouped: dict[KeyPath, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):
            grouped.setdefault(_within(data, detail), []).append(detail)
    for path, details in grouped.items():
        _tell(path, details, findings)
    return None


def complaint(**part: Any) -> str | None:
    """Return the first thing that is wrong in the shape of these keys of a suite, if any is."""
    findings = Findings("", Document(Node(Mark(1, 1), None)))
    entry = {"name": "case", "benchmark": "benchmark"}
    check_shape({"schema": SCHEMA, "name": "suite", "cases": [entry], **part}, findings)
    try:
        findings.raise_if_any()
    except SuiteError as error:
        return error.diagnostics[0].message
    return None


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def _within(data: Any, detail: ErrorDetails) -> KeyPath:
    """Return the part of an error's location that is in the data; unions and keys add to it."""
    path: KeyPath = ()
    for part in detail["loc"]:
        keys: Any = data if isinstance(data, dict) else ()
        keys = range(len(data)) if isinstance(data, list) else keys
        if part not in keys:
            break
        path, data = (*path, part), data[part]
    return path


def _tell(path: KeyPath, details: list[ErrorDetails], findings: Findings) -> None:
    changing = [d for d in details if d["type"] not in ("missing", "none_required")]
    for detail in details:
        if detail["type"] == "missing":
            findings.at_value(path, f"{_whole(path)} lacks the key {detail['loc'][-1]!r}")
    if not changing:
        return
    first = changing[0]
    if first["type"] == "extra_forbidden":
        findings.at_key(path, _unknown_key(path))
    elif first["loc"][-1] == "[key]":
        findings.at_key(path, f"{path[-1]!r} cannot name an environment variable: use {_ENV_NAME}")
    else:
        findings.at_value(path, _wrong_value(path, changing))


def _wrong_value(path: KeyPath, details: list[ErrorDetails]) -> str:
    value = details[0]["input"]
    name = "a case" if path[:1] == ("cases",) and len(path) == 2 else dotted(path)
    if details[0]["type"] == "string_pattern_mismatch":
        return f"{name} is {shown(value)}; use {_NAME}"
    expected = dict.fromkeys(_expected(detail) for detail in details)
    hint = ""
    if "text" in expected and isinstance(value, (bool, int, float)):
        hint = " (put it in quotes)"
    choices = [word for d in details for word in _choices(d)]
    if isinstance(value, str):
        hint = did_you_mean(value, choices) if len(choices) > 1 else ""
    return f"{name} must be {' or '.join(expected)}, not {shown(value)}{hint}"


def _expected(detail: ErrorDetails) -> str:
    context = dict(detail.get("ctx", {}))
    if detail["type"] == "literal_error":
        *most, last = _choices(detail)
        return f"{', '.join(most)} or {last}" if most else last
    template = _EXPECTED.get(detail["type"])
    return template.format(**context) if template else f"valid ({detail['msg']})"


def _choices(detail: ErrorDetails) -> list[str]:
    if detail["type"] != "literal_error":
        return []
    return str(detail["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")


def _unknown_key(path: KeyPath) -> str:
    known = _known_keys(path[:-1])
    near = did_you_mean(str(path[-1]), known) or f" (known: {', '.join(known)})"
    return f"unknown key {path[-1]!r} in {_whole(path[:-1])}{near}"


def _known_keys(path: KeyPath) -> list[str]:
    if not path:
        return ["schema", *(name for name in SuiteFile.model_fields if name != "schema_")]
    if path[-1] == "launch":
        return list(LaunchSettings.model_fields)
    return list(CaseEntry.model_fields if len(path) == 2 else Bound.model_fields)


def _whole(path: KeyPath) -> str:
    if not path:
        return "the suite"
    return dotted(path) if path[-1] == "launch" or len(path) > 2 else "the case"


def dotted(path: KeyPath) -> str:
    """Return a path as a message names it: from its case on, ``launch.args[0]``."""
    inner = path[2:] if len(path) > 2 and path[0] == "cases" else path
    words = ""
    for part in inner:
        words += f"[{part}]" if isinstance(part, int) else f".{part}"
    return words.removeprefix(".")
