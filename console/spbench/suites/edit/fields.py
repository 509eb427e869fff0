"""Fields of a form, from the catalog's parameters and from the model of suites."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from spbench.suites.edit.yaml_format import format_scalar
from spbench.suites.model import Bound, CaseDefaults, CaseEntry, SuiteFile
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.default_texts import describe_without_default, list_default_texts
from spbench_core.catalog.parameters import UNSWEPT_KINDS, Param, ParamKind
from spbench_core.number_text import format_bytes

FieldKind = Literal[ParamKind, "env", "keys"]
"""The kinds of parameters, and of settings: ``env`` for variables, ``keys`` for text or keys."""
_DESCRIPTIONS: dict[FieldKind, str] = {
    "int": "a whole number",
    "float": "a number",
    "pair": "N or RxC",
    "bytes": "bytes such as 65536 or 64KiB",
    "bytes_list": "bytes with commas between",
    "choices": "several with commas between",
    "ints": "whole numbers with commas between",
    "text": "text",
    "words": "words with blanks between, quoted as in a shell",
    "data": "{NAME: VALUE, ...}",
    "lines": "one per line",
    "env": "NAME=VALUE lines",
    "keys": "text, or {KEY: VALUE, ...}",
}


_OTHER_DEFAULTS = "by benchmark"
_PAIR_NOTATION = re.compile(r", N or \wx\w\b")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        name: The name of the parameter or setting.
        kind: The kind of its values.
        help: A description.
        default: The value of an empty field; ``auto`` if it depends on other things, and empty
            without a default.
        accepts: A description of valid input: ``a whole number, 1 to 1000``.
        choices: Words to choose from; with kind ``int`` a number is allowed, too.
        minimum: The least number.
        maximum: The greatest number.
        param: Its parameter; None for np and for settings.
        path: The path of a setting in a suite; empty for parameters and np, which can be swept.
    """

    name: str
    kind: FieldKind
    help: str
    default: str
    accepts: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    param: Param | None = None
    path: tuple[str, ...] = ()

    @property
    def can_sweep(self) -> bool:
        """Whether a case can sweep over a list of its values."""
        return not self.path and self.kind not in UNSWEPT_KINDS


def describe_accepted(kind: FieldKind, choices: tuple[str, ...], bounds: str) -> str:
    """Return a description of the valid input of a field."""
    descriptions = [", ".join(choices)] if choices else []
    if kind in _DESCRIPTIONS:
        descriptions.append(_DESCRIPTIONS[kind])
    return ", ".join(filter(None, [" or ".join(descriptions), bounds]))


def format_bounds(minimum: str | None, maximum: str | None) -> str:
    """Return a description of bounds; empty without bounds."""
    if minimum is not None and maximum is not None:
        return f"{minimum} to {maximum}"
    if minimum is not None:
        return f"from {minimum}"
    return "" if maximum is None else f"up to {maximum}"


_KIND_BY_SCHEMA_TYPE: dict[str, FieldKind] = {
    "integer": "int",
    "number": "float",
    "array": "lines",
    "object": "env",
}
_BOUND_KEYS = ("minimum", "maximum", "exclusiveMinimum")


def list_param_fields(benchmark: Benchmark) -> tuple[Field, ...]:
    """Return the fields of a benchmark's parameters."""
    defaults = list_default_texts(benchmark)
    return tuple(_make_param_field(param, defaults[param.name]) for param in benchmark.params)


def list_launch_fields() -> tuple[Field, ...]:
    """Return the fields of the launch settings."""
    return _list_model_fields(LaunchSettings, LaunchSettings.model_fields, ("launch",))


def list_case_fields() -> tuple[Field, ...]:
    """Return the fields of a case itself: name, np, repeat."""
    name, np, repeat = _list_model_fields(CaseEntry, ("name", "np", "repeat"), ("case",))
    return name, replace(np, path=()), repeat


def list_suite_fields() -> tuple[Field, ...]:
    """Return the fields of a suite itself: name, description, order."""
    return _list_model_fields(SuiteFile, ("name", "description", "order"), ("suite",))


def list_default_fields() -> tuple[Field, ...]:
    """Return the fields of ``defaults:`` with one value: np, repeat."""
    return _list_model_fields(CaseDefaults, ("np", "repeat"), ("defaults",))


def list_shared_param_fields(
    benchmarks: Sequence[Benchmark], chosen: Iterable[str]
) -> tuple[Field, ...]:
    """Return the fields of parameters in ``defaults:``, the most common ones first.

    Args:
        benchmarks: The benchmarks of the suite. With several, a parameter of only one of them has
            no field. Without any, the parameters that most benchmarks have are returned.
        chosen: The keys of the parameters that have a default already.
    """
    considered = benchmarks or tuple(BENCHMARKS.values())
    least_count = min(2, len(considered)) if benchmarks else len(considered) // 2
    params = [benchmark.find_param(key) for key in chosen for benchmark in considered]
    chosen_names = {param.name for param in params if param is not None}
    fields_by_name: dict[str, list[Field]] = {}
    for benchmark in considered:
        for param_field in list_param_fields(benchmark):
            fields_by_name.setdefault(param_field.name, []).append(param_field)
    shared = sorted(fields_by_name.values(), key=len, reverse=True)
    return tuple(
        _merge_fields(fields)
        for fields in shared
        if len(fields) >= least_count or fields[0].name in chosen_names
    )


def _merge_fields(fields: Sequence[Field]) -> Field:
    """Return the field of a parameter of several benchmarks."""
    first = fields[0]
    has_one_default = all(field.default == first.default for field in fields)
    path = ("defaults", "params", first.name)
    return replace(first, default=first.default if has_one_default else _OTHER_DEFAULTS, path=path)


def list_bound_fields(metric: str) -> tuple[Field, ...]:
    """Return the fields of a bound on a metric of `list_metrics` or a statistic of it."""
    return _list_model_fields(Bound, ("max", "min"), ("case", "expect", metric))


def list_reference_fields(metric: str) -> tuple[Field, ...]:
    """Return the fields of a reference of a metric or a statistic of it."""
    return _list_model_fields(Bound, ("reference", "lower", "upper"), ("case", "expect", metric))


def _make_param_field(param: Param, default: str) -> Field:
    choices = ("on", "off") if param.kind == "bool" else param.choices
    help_text = describe_without_default(param, default)
    minimum, maximum = (_format_value(param, number) for number in (param.minimum, param.maximum))
    return Field(
        name=param.name,
        kind=param.kind,
        # The hint has the notation of pairs anyway.
        help=_PAIR_NOTATION.sub("", help_text),
        default=default,
        accepts=describe_accepted(param.kind, choices, format_bounds(minimum, maximum)),
        choices=choices,
        minimum=param.minimum,
        maximum=param.maximum,
        param=param,
    )


def _format_value(param: Param, value: Any) -> str | None:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is not None and param.kind in ("bytes", "bytes_list"):
        return str(format_bytes(int(value)))
    return f"{value:.15g}" if isinstance(value, (int, float)) else value


def _list_model_fields(
    model: type[BaseModel], names: Iterable[str], path: tuple[str, ...]
) -> tuple[Field, ...]:
    properties = model.model_json_schema()["properties"]
    return tuple(_make_schema_field(name, properties[name], (*path, name)) for name in names)


def _make_schema_field(name: str, schema: Mapping[str, Any], path: tuple[str, ...]) -> Field:
    """Return the field of one key of a model, from its JSON Schema."""
    type_schemas = [
        type_schema
        for type_schema in schema.get("anyOf", [schema])
        if type_schema.get("type") != "null"
    ]
    choices = tuple(
        word
        for type_schema in type_schemas
        for word in type_schema.get("enum", _list_choices(type_schema))
    )
    kind: FieldKind = "choice" if choices else "text"
    known_kinds = [
        schema_kind
        for type_schema in type_schemas
        if (schema_kind := _find_kind(type_schema)) is not None
    ]
    if known_kinds:
        kind = known_kinds[0]
    bound_by_key = {
        key: type_schema[key]
        for type_schema in type_schemas
        for key in _BOUND_KEYS
        if key in type_schema
    }
    minimum, maximum, exclusive_minimum = (
        f"{bound_by_key[key]:g}" if key in bound_by_key else None for key in _BOUND_KEYS
    )
    default = schema.get("default")
    if isinstance(default, bool):
        default = format_scalar(default)
    elif isinstance(default, float):
        default = f"{default:.15g}"
    return Field(
        name=name,
        kind=kind,
        help=schema["description"],
        default="" if default in (None, [], {}) else str(default),
        accepts=describe_accepted(
            kind,
            choices,
            f"above {exclusive_minimum}" if exclusive_minimum else format_bounds(minimum, maximum),
        ),
        choices=choices,
        minimum=bound_by_key.get("minimum"),
        maximum=bound_by_key.get("maximum"),
        path=path,
    )


def _find_kind(type_schema: Mapping[str, Any]) -> FieldKind | None:
    """Return the kind of a field by its type; nested keys are a reference."""
    return "keys" if "$ref" in type_schema else _KIND_BY_SCHEMA_TYPE.get(type_schema["type"])


def _list_choices(type_schema: Mapping[str, Any]) -> list[str]:
    if type_schema.get("type") == "boolean":
        return ["true", "false"]
    return [type_schema["const"]] if "const" in type_schema else []
