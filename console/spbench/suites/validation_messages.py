"""Messages for pydantic's errors about the shape of a file, with their positions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spbench.errors import SuiteError, did_you_mean
from spbench.suites.case import SCHEMA
from spbench.suites.file_errors import FileErrors
from spbench.suites.key_suggestions import (
    is_parameter,
    is_synonym,
    suggest_key,
    suggest_launch_key,
)
from spbench.suites.model import SuiteFile
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import Document, KeyPath, Mark, Node

_EXPECTED_BY_ERROR_TYPE = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "expression_type": "an expression",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "too_short": "{whole} with at least {items}",
    "too_long": "{whole} with at most {max_length} items",
    "string_too_short": "text that is not empty",
    "string_too_long": "at most {max_length} characters long",
}
_MAX_VALUE_LENGTH = 60
"""The number of characters of a value in a message, including quotes."""
_SUITE_KEYS = ("schema", "description", "order", "defaults", "cases")
"""The keys of a suite that no part of it has."""
_NAME = "letters, digits and . _ - with a letter or digit first"


def validate_suite(data: Mapping[str, Any], errors: FileErrors) -> SuiteFile | None:
    """Return the suite file as a model, or None after adding its errors to ``errors``."""
    try:
        return SuiteFile.model_validate(data)
    except ValidationError as error:
        report_errors(error, data, errors, SuiteFile)
    return None


def report_errors(
    error: ValidationError, data: Any, errors: FileErrors, model: type[BaseModel]
) -> None:
    """Add the errors of pydantic about the data of a file to ``errors``."""
    details_by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        details_by_path.setdefault(_find_path(data, detail), []).append(detail)
    for path, details in details_by_path.items():
        _report_path(path, _drop_text_error(path, details, details_by_path), errors, model)


def _drop_text_error(
    path: KeyPath, details: list[ErrorDetails], details_by_path: Mapping[KeyPath, Any]
) -> list[ErrorDetails]:
    """Return the errors without that of text, if keys were given and are allowed, too."""
    has_inner_errors = any(other[: len(path)] == path != other for other in details_by_path)
    if not has_inner_errors and all(detail["type"] != "missing" for detail in details):
        return details
    return [detail for detail in details if detail["type"] != "string_type"]


def find_shape_error(**part: Any) -> str | None:
    """Return the first error in the shape of some keys of a suite, or None."""
    errors = FileErrors("", Document(Node(Mark(1, 1), None)))
    entry = {"name": "case", "benchmark": "benchmark"}
    validate_suite({"schema": SCHEMA, "name": "suite", "cases": [entry], **part}, errors)
    try:
        errors.raise_if_any()
    except SuiteError as error:
        return error.diagnostics[0].message
    return None


def format_value(value: Any) -> str:
    """Return a value for a message."""
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return str(value).lower()
    return _clip_middle(repr(value))


def _clip_middle(text: str) -> str:
    """Return a text with both ends of a long one, which may be a file by mistake."""
    if len(text) <= _MAX_VALUE_LENGTH:
        return text
    end_length = (_MAX_VALUE_LENGTH - 2) // 2
    return f"{text[:end_length]}...{text[-end_length:]}"


def _find_path(data: Any, detail: ErrorDetails) -> KeyPath:
    """Return the part of an error's location that is in the data."""
    path: KeyPath = ()
    for step in detail["loc"]:
        known_steps: Any = data if isinstance(data, dict) else ()
        known_steps = range(len(data)) if isinstance(data, list) else known_steps
        if step not in known_steps:
            continue
        path, data = (*path, step), data[step]
    return path


def _report_path(
    path: KeyPath, details: list[ErrorDetails], errors: FileErrors, model: type[BaseModel]
) -> None:
    value_details = []
    for detail in details:
        add = errors.add_at_key if detail["loc"][-1:] == ("[key]",) else errors.add_at_value
        if detail["type"] == "missing":
            add(path, f"{_name_container(path, model)} lacks the key {detail['loc'][-1]!r}")
        elif detail["type"] == "value_error":  # the message of a validator
            add(path, str(detail["ctx"]["error"]))
        elif detail["type"] != "none_required":
            value_details.append(detail)
    if not value_details:
        return
    if value_details[0]["type"] == "extra_forbidden":
        errors.add_at_key(path, _describe_unknown_key(path, model))
    elif not path:
        errors.add_at_value(
            path, f"{_name_container(path, model)} begins with 'schema: {_read_schema(model)}'"
        )
    else:
        add = (
            errors.add_at_key if value_details[0]["loc"][-1:] == ("[key]",) else errors.add_at_value
        )
        add(path, _describe_value(path, value_details) + _format_example(path, model))


def _describe_value(path: KeyPath, details: list[ErrorDetails]) -> str:
    value = details[0]["input"]
    name = "a case" if path[:1] == ("cases",) and len(path) == 2 else format_path(path)
    if details[0]["type"] == "string_pattern_mismatch":
        return f"{name} is {format_value(value)}; use {_NAME}"
    expected_texts = dict.fromkeys(_describe_expected(detail) for detail in details)
    hint = ""
    if "text" in expected_texts and isinstance(value, (bool, int, float)):
        hint = " (put it in quotes)"
    choices = [choice for detail in details for choice in _list_choices(detail)]
    if isinstance(value, str):
        hint = did_you_mean(value, choices) if len(choices) > 1 else ""
    actual = (
        _format_length(value)
        if details[0]["type"] in ("too_short", "too_long")
        else format_value(value)
    )
    return f"{name} must be {' or '.join(expected_texts)}, not {actual}{hint}"


def _format_length(value: Any) -> str:
    """Return a list or a mapping of wrong length for a message."""
    if len(value) == 0:
        return "an empty mapping" if value == {} else format_value(value)
    return f"with {len(value)}"


def _describe_expected(detail: ErrorDetails) -> str:
    context = dict(detail.get("ctx", {}))
    if detail["type"] == "literal_error":
        *choices, last = _list_choices(detail)
        return f"{', '.join(choices)} or {last}" if choices else last
    minimum = context.get("min_length", 1)
    context["items"] = "one item" if minimum == 1 else f"{minimum} items"
    context["whole"] = "a mapping" if context.get("field_type") == "Dictionary" else "a list"
    template = _EXPECTED_BY_ERROR_TYPE.get(detail["type"])
    return template.format(**context) if template else f"valid ({detail['msg']})"


def _list_choices(detail: ErrorDetails) -> list[str]:
    if detail["type"] != "literal_error":
        return []
    return str(detail["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")


def _describe_unknown_key(path: KeyPath, model: type[BaseModel]) -> str:
    keys = [field.alias or name for name, field in _find_fields(path[:-1], model).items()]
    key = str(path[-1])
    message = f"unknown key {path[-1]!r} in {_name_container(path[:-1], model)}"
    if remedy := _find_place(path, model):
        return f"{message} ({remedy})"
    hint = suggest_key(key, keys) or f" (known: {', '.join(keys)})"
    if "launch" in keys:
        hint = suggest_launch_key(key) or hint
    return message + hint


def _find_place(path: KeyPath, model: type[BaseModel]) -> str:
    """Return where in a suite an unknown key belongs, or an empty text."""
    parent = path[:-1]
    key = path[-1]
    if model is not SuiteFile:
        return ""
    if parent == ("defaults",) and key in ("launch", *LaunchSettings.model_fields):
        return "launch settings of all cases are keys of the suite's launch"
    if parent and key in _SUITE_KEYS:
        return f"{key} is a key of the suite: write it at the start of a line"
    if is_parameter(str(key)) and not is_synonym(str(key)):
        if not parent:
            return f"{key} is a parameter: write it under params of a case or of defaults"
        if parent == ("defaults",) or (len(parent) == 2 and parent[0] == "cases"):
            return f"{key} is a parameter: write it under params"
    return ""


def _format_example(path: KeyPath, model: type[BaseModel]) -> str:
    field = _find_fields(path[:-1], model).get(str(path[-1]))
    return f" (such as {json.dumps(field.examples[0])})" if field and field.examples else ""


def _find_fields(path: KeyPath, model: Any) -> dict[str, FieldInfo]:
    """Return the fields of the model at a path; a list or a mapping has none."""
    for step in path:
        keys = getattr(model, "model_fields", None)
        model = keys[step].annotation if keys else get_args(model)[-1]
        if get_origin(model) in (Union, UnionType):
            models = (option for option in get_args(model) if hasattr(option, "model_fields"))
            model = next(models, model)
    return getattr(model, "model_fields", {})


def _name_container(path: KeyPath, model: type[BaseModel]) -> str:
    if not path:
        return "the " + _read_schema(model).removeprefix("spbench.").partition("/")[0]
    return "the case" if len(path) == 2 and path[0] == "cases" else format_path(path)


def _read_schema(model: type[BaseModel]) -> str:
    return str(get_args(model.model_fields["schema_"].annotation)[0])


def format_path(path: KeyPath) -> str:
    """Return a path for a message, relative to its case: ``launch.args[0]``.

    A path in ``defaults`` is that of the value in a case that inherits it.
    """
    path_in_case = path[2:] if len(path) > 2 and path[0] == "cases" else path
    path_in_case = path[1:] if len(path) > 1 and path[0] == "defaults" else path_in_case
    text = ""
    for step in path_in_case:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")
