"""The fields of the form of a suite's head, and the head as their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from spbench.suites.edit.fields import (
    list_default_fields,
    list_launch_fields,
    list_shared_param_fields,
    list_suite_fields,
)
from spbench.suites.edit.form_values import format_text
from spbench.suites.edit.head import HeadDraft
from spbench.tui.form.text_reader import TextReader
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.form.form_texts import LAUNCH
from spbench_core.catalog.benchmark import Benchmark

DEFAULTS = "defaults."
PARAMS = "params."
"""Prefixes of the names of defaults, and of parameters among them."""


class SuiteFields:
    """The fields of a suite's head, and the texts of a draft.

    Args:
        draft: The head.
        benchmarks: The benchmarks of the suite's cases.
    """

    def __init__(self, draft: HeadDraft, benchmarks: Sequence[Benchmark]) -> None:
        self.draft = draft
        self._benchmarks = benchmarks
        self.suite_fields = list_suite_fields()
        self.default_fields = list_default_fields()
        self.param_fields = list_shared_param_fields(benchmarks, self.params)
        self.launch_fields = list_launch_fields()

    @property
    def params(self) -> Mapping[str, Any]:
        """The default parameters by their keys in the file."""
        params: Mapping[str, Any] = self.draft.defaults.get("params") or {}
        return params

    @property
    def other_keys(self) -> Sequence[str]:
        """The keys of ``defaults:`` without fields, which the form leaves as they are."""
        with_fields = ("params", *(field.name for field in self.default_fields))
        return [key for key in self.draft.defaults if key not in with_fields]

    def find_name(self, key: str) -> str:
        """Return the name of a parameter for its name or alias."""
        params = (benchmark.find_param(key) for benchmark in self._benchmarks)
        return next((param.name for param in params if param is not None), key)

    @cached_property
    def initial_texts(self) -> FormTexts:
        """The texts of the draft."""
        draft = self.draft
        head = {"name": draft.name, "description": draft.description, "order": draft.order}
        params = {self.find_name(key): value for key, value in self.params.items()}
        sections = (
            ("", self.suite_fields, head),
            (DEFAULTS, self.default_fields, draft.defaults),
            (PARAMS, self.param_fields, params),
            (LAUNCH, self.launch_fields, draft.launch),
        )
        return FormTexts(
            {
                prefix + field.name: format_text(field, values[field.name])
                for prefix, fields, values in sections
                for field in fields
                if values.get(field.name) is not None
            }
        )


@dataclass(frozen=True, slots=True)
class HeadResult:
    """The result of reading the texts of a form.

    Attributes:
        draft: The head; None if there are errors.
        errors: Error messages by the name of the text.
    """

    draft: HeadDraft | None
    errors: Mapping[str, str]


def read_head_draft(fields: SuiteFields, form_texts: FormTexts) -> HeadResult:
    """Return the head of a suite from the texts of a form, or the errors in them."""
    reader = TextReader(fields.initial_texts, form_texts)
    draft = fields.draft
    head: dict[str, Any] = {
        "name": draft.name,
        "description": draft.description,
        "order": draft.order,
    }
    head = reader.read_fields(fields.suite_fields, "", head)
    changed = replace(
        draft,
        name=head.get("name", ""),
        description=head.get("description", ""),
        order=head.get("order"),
        launch=reader.read_fields(fields.launch_fields, LAUNCH, draft.launch),
        defaults=_read_defaults(fields, reader),
    )
    return HeadResult(None if reader.errors else changed, reader.errors)


def _read_defaults(fields: SuiteFields, reader: TextReader) -> dict[str, Any]:
    defaults = reader.read_fields(fields.default_fields, DEFAULTS, fields.draft.defaults)
    key_by_name = {fields.find_name(key): key for key in fields.params}
    before = {name: fields.params[key] for name, key in key_by_name.items()}
    params = reader.read_fields(fields.param_fields, PARAMS, before)
    defaults["params"] = {key_by_name.get(name, name): value for name, value in params.items()}
    if not params:
        del defaults["params"]
    return defaults
