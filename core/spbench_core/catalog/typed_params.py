"""Parameters of a benchmark as a dataclass, for its entry and its module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, replace
from functools import cache
from typing import Any, TypeVar

from spbench_core.catalog.parameters import Param, ParamKind
from spbench_core.layout.tiles import parse_pair

_METADATA = "param"
ParamsT = TypeVar("ParamsT")
ValueT = TypeVar("ValueT")


def parameter(
    kind: ParamKind, default: Any, help: str, *, optional: bool = False, **bounds: Any
) -> Any:
    """Return the dataclass field of a parameter; the field's name is the parameter's.

    Args:
        kind: The kind of its values.
        default: Its default; None: the benchmark derives it from other parameters.
        help: A description.
        optional: Whether a benchmark that shares the dataclass may lack it. It is then None.
        bounds: More arguments of `Param`.
    """
    return reuse_parameter(Param("", kind, default, help, **bounds), optional=optional)


def reuse_parameter(param: Param, *, optional: bool = False, **changes: Any) -> Any:
    """Return the dataclass field of a parameter that several benchmarks have.

    Args:
        param: The parameter; the field has its name.
        optional: Whether a benchmark that shares the dataclass may lack it. It is then None.
        changes: Attributes of the parameter that differ in this benchmark.
    """
    metadata = {_METADATA: replace(param, **changes)}
    return field(default=None, metadata=metadata) if optional else field(metadata=metadata)


@cache
def params_of(cls: type) -> tuple[Param, ...]:
    """Return the parameters of a dataclass, in the order of its fields.

    Raises:
        TypeError: A field is not a parameter, or its parameter has another name.
    """
    params = []
    for field_ in fields(cls):
        param = field_.metadata.get(_METADATA)
        if param is None or param.name not in ("", field_.name):
            raise TypeError(f"{cls.__name__}.{field_.name} is not a parameter of that name")
        params.append(replace(param, name=field_.name))
    return tuple(params)


def read_params(cls: type[ParamsT], values: Mapping[str, Any]) -> ParamsT:
    """Return complete parameters as an instance of their dataclass.

    A pair such as ``image_size`` becomes two numbers.
    """
    return cls(
        **{
            field_.name: _split_pair(field_.metadata[_METADATA].kind, values[field_.name])
            for field_ in fields(cls)  # type: ignore[arg-type]
            if field_.name in values or field_.default is MISSING
        }
    )


def require_value(value: ValueT | None) -> ValueT:
    """Return the value of an optional parameter, which the entry has filled in."""
    assert value is not None, "the entry fills it in"
    return value


def _split_pair(kind: ParamKind, value: Any) -> Any:
    if kind == "pair" and value is not None:
        return parse_pair(value, 0)
    return value


# Plug-ins made for API version 1 use these names.
shared = reuse_parameter
filled = require_value
