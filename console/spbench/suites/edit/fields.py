"""Fields of a form, all of them from the catalog and from the model of suites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from spbench.suites.edit.field import Field, FieldKind, describe_accepted, format_bounds
from spbench.suites.edit.ranges import format_bytes
from spbench.suites.edit.writing import format_scalar
from spbench.suites.model import Bound, CaseEntry
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import Param

_TYPES: dict[str, FieldKind] = {
    "integer": "int",
    "number": "float",
    "array": "lines",
    "object": "env",
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum")


def list_param_fields(benchmark: Benchmark) -> tuple[Field, ...]:
    """Return the fields of a benchmark's parameters."""
    return tuple(map(_of_param, benchmark.params))


def list_launch_fields() -> tuple[Field, ...]:
    """Return the fields of the launch settings."""
    return _of_model(LaunchSettings, LaunchSettings.model_fields, ("launch",))


def list_case_fields() -> tuple[Field, ...]:
    """Return the fields of a case itself: name, np, repeat."""
    name, np, repeat = _of_model(CaseEntry, ("name", "np", "repeat"), ("case",))
    return name, replace(np, path=()), repeat


def list_bound_fields(metric: str) -> tuple[Field, ...]:
    """Return the fields of an expectation on one of `metrics_of`, or a statistic of it."""
    return _of_model(Bound, ("max", "min"), ("case", "expect", metric))


def list_reference_fields(metric: str) -> tuple[Field, ...]:
    """Return the fields of a reference of one of `metrics_of`, or of a statistic of it."""
    return _of_model(Bound, ("reference", "lower", "upper"), ("case", "expect", metric))


def _of_param(param: Param) -> Field:
    choices = ("on", "off") if param.kind == "bool" else param.choices
    default = param.default if isinstance(param.default, list) else [param.default]
    least, most = (_shown(param, number) for number in (param.minimum, param.maximum))
    return Field(
        name=param.name,
        kind=param.kind,
        help=param.help,
        default=", ".join(_shown(param, item) or "" for item in default),
        accepts=describe_accepted(param.kind, choices, format_bounds(least, most)),
        choices=choices,
        minimum=param.minimum,
        maximum=param.maximum,
        param=param,
    )


def _shown(param: Param, value: Any) -> str | None:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is not None and param.kind in ("bytes", "bytes_list"):
        return str(format_bytes(int(value)))
    return f"{value:.15g}" if isinstance(value, (int, float)) else value


def _of_model(
    model: type[BaseModel], names: Iterable[str], path: tuple[str, ...]
) -> tuple[Field, ...]:
    properties = model.model_json_schema()["properties"]
    return tuple(_of_schema(name, properties[name], (*path, name)) for name in names)


def _of_schema(name: str, schema: Mapping[str, Any], path: tuple[str, ...]) -> Field:
    """Return the field of one key of a model, from its JSON Schema."""
    parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    choices = tuple(word for part in parts for word in part.get("enum", _choices(part)))
    typed = [known for part in parts if (known := _kind(part)) is not None]
    kind: FieldKind = typed[0] if typed else "choice" if choices else "text"
    bounds = {key: part[key] for part in parts for key in _BOUNDS if key in part}
    least, most, above = (f"{bounds[key]:g}" if key in bounds else None for key in _BOUNDS)
    default = schema.get("default")
    default = format_scalar(default) if isinstance(default, bool) else default
    return Field(
        name=name,
        kind=kind,
        help=schema["description"],
        default="" if default in (None, [], {}) else str(default),
        accepts=describe_accepted(
            kind, choices, f"above {above}" if above else format_bounds(least, most)
        ),
        choices=choices,
        minimum=bounds.get("minimum"),
        maximum=bounds.get("maximum"),
        path=path,
    )


def _kind(part: Mapping[str, Any]) -> FieldKind | None:
    """Return the kind of a field by its type; keys of their own stand elsewhere in the schema."""
    return "keys" if "$ref" in part else _TYPES.get(part["type"])


def _choices(part: Mapping[str, Any]) -> list[str]:
    if part.get("type") == "boolean":
        return ["true", "false"]
    return [part["const"]] if "const" in part else []
