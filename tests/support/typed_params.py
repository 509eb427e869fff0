"""Parameters as attributes for doubles of a benchmark's context."""

from dataclasses import fields
from typing import Any

from spbench_core.catalog.typed_params import read_params


class TypedParams:
    """A base of doubles that have some parameters by name; all others are None."""

    params: dict[str, Any]

    def read_params(self, cls):
        return fill_params(cls, self.params)


def fill_params(cls, given):
    """Return an instance of the parameters' dataclass with these values, and None for others."""
    return read_params(cls, {field.name: given.get(field.name) for field in fields(cls)})
