"""References between entries of a file, such as a machine's to a link, checked by its model."""

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
        known: The names that the file gives, by what they name: "link". What has none in the file
            has an error there, and every name of it would be another one.
        order: The names of a profile's layers in their order.
        seen: What was read so far and may not come again.
        device_count: Devices read so far.
    """

    names: dict[str, set[str]]
    layer_order: list[str] = field(default_factory=list)
    unique_keys: set[Hashable] = field(default_factory=set)
    device_count: int = 0


def get_context(info: ValidationInfo) -> ValidationContext:
    """Return the context in a validator."""
    return cast(ValidationContext, info.context)


def check_reference(what: str) -> AfterValidator:
    """Return the validator of a reference to something by its name."""

    def check(name: str, info: ValidationInfo) -> str:
        names = get_context(info).names.get(what)
        if names is not None and name not in names:
            raise ValueError(f"no {what} is called {name!r}{did_you_mean(name, names)}")
        return name

    return AfterValidator(check)


def check_unique(key: Callable[[Any], Hashable], message: str) -> AfterValidator:
    """Return the validator of a value of which no two may have the same key."""

    def check(value: Any, info: ValidationInfo) -> Any:
        seen = get_context(info).unique_keys
        if key(value) in seen:
            raise ValueError(message.format(value))
        seen.add(key(value))
        return value

    return AfterValidator(check)


def make_validation_error(found: Iterable[tuple[KeyPath, str]]) -> ValidationError:
    """Return the error of a validator about parts of its value: where each is, and a sentence."""
    errors = [
        (path, PydanticCustomError("value_error", "{error}", {"error": told}))
        for path, told in found
    ]
    return ValidationError.from_exception_data(
        "", [InitErrorDetails(type=error, loc=path, input=None) for path, error in errors]
    )
