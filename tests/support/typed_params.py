"""Typed parameters for test doubles of a benchmark's context."""

from dataclasses import fields
from typing import Any

from spbench_core.catalog.typed_params import read_params


class TypedParams:
    """Base of test doubles that define some parameters; all others are None."""

    params: dict[str, Any]

    def read_params(self, cls):
        return fill_params(cls, self.params)


def fill_params(cls, params):
    """Return the dataclass of parameters with these values, and None for all others."""
    return read_params(cls, {field.name: params.get(field.name) for field in fields(cls)})
