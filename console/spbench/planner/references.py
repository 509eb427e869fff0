"""Checks of references between entries of a file, such as a machine's link."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import AfterValidator, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from spbench.errors import did_you_mean
from spbench.suites.yaml_nodes import KeyPath


@dataclass(slots=True)
class ValidationContext:
    """The context of a file's validation.

    Attributes:
        names: The names in the file by kind of entry, such as "link". A kind that is missing from
            the file has its own error, so names of that kind are not checked.
        layer_order: The names of a profile's layers in order.
        unique_keys: The keys so far that must not be repeated.
        device_count: Devices so far.
    """

    names: dict[str, set[str]]
    layer_order: list[str] = field(default_factory=list)
    unique_keys: set[Hashable] = field(default_factory=set)
    device_count: int = 0


def get_context(info: ValidationInfo) -> ValidationContext:
    """Return the validation context in a validator."""
    return cast(ValidationContext, info.context)


def make_reference_validator(kind: str) -> AfterValidator:
    """Return the validator of a reference to an entry of some kind by its name."""

    def check(name: str, info: ValidationInfo) -> str:
        names = get_context(info).names.get(kind)
        if names is not None and name not in names:
            raise ValueError(f"no {kind} is called {name!r}{did_you_mean(name, names)}")
        return name

    return AfterValidator(check)


def make_unique_validator(key: Callable[[Any], Hashable], message: str) -> AfterValidator:
    """Return the validator of values that must have different keys."""

    def check(value: Any, info: ValidationInfo) -> Any:
        keys = get_context(info).unique_keys
        if key(value) in keys:
            raise ValueError(message.format(value))
        keys.add(key(value))
        return value

    return AfterValidator(check)


def make_validation_error(errors: Iterable[tuple[KeyPath, str]]) -> ValidationError:
    """Return a validator's error from paths in its value and messages."""
    details = [
        (path, PydanticCustomError("value_error", "{error}", {"error": message}))
        for path, message in errors
    ]
    return ValidationError.from_exception_data(
        "", [InitErrorDetails(type=error, loc=path, input=None) for path, error in details]
    )
