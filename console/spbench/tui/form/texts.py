"""The texts of a form: those of its fields, and of its rows with several boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spbench.errors import SpbenchError
from spbench.suites.edit.fields import Field
from spbench.suites.edit.form_values import parse_sweep, parse_text
from spbench_core.catalog.parameters import LIST_KINDS


class ExpectationTexts(NamedTuple):
    """The texts of a metric or metric.statistic, and its bounds."""

    metric: str = ""
    maximum: str = ""
    minimum: str = ""


class ReferenceTexts(NamedTuple):
    """The texts of a metric or metric.statistic, a system, and its reference."""

    metric: str = ""
    system: str = ""
    reference: str = ""
    lower: str = ""
    upper: str = ""


@dataclass(frozen=True, slots=True)
class FormTexts:
    """All texts of a form.

    Attributes:
        by_name: The texts that are not in rows of several boxes.
        expect: The texts of each expectation.
        references: The texts of each reference with tolerances.
    """

    by_name: Mapping[str, str]
    expect: Sequence[ExpectationTexts] = ()
    references: Sequence[ReferenceTexts] = ()


def is_sweep(field: Field, text: str) -> bool:
    """Return whether a text has several values: commas, a range, or lists of lists."""
    if not field.can_sweep:
        return False
    if text.lstrip().startswith("[") and field.kind != "text":
        return True
    return field.kind not in LIST_KINDS and ("," in text or ".." in text)


def find_error(field: Field, text: str) -> str | None:
    """Return the loader's error for a text; None if it is valid or empty."""
    if not text.strip():
        return None
    try:
        if is_sweep(field, text):
            parse_sweep(field, text)
        else:
            parse_text(field, text)
    except SpbenchError as error:
        return str(error)
    return None
