"""The fields of the form of a case, and the case as their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from spbench.suites.case import Case
from spbench.suites.defaults import select_inherited
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.fields import (
    Field,
    list_case_fields,
    list_launch_fields,
    list_param_fields,
)
from spbench.suites.edit.form_values import format_sweep, format_text
from spbench.suites.edit.yaml_format import format_flow
from spbench.tui.form.texts import ExpectationTexts, FormTexts, ReferenceTexts, is_sweep
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.default_texts import AUTO, format_default_texts
from spbench_core.catalog.parameters import LIST_KINDS

IN_STEP = "in step"
EXCLUDE = "exclude"
COMMENT = "comment"
"""Names of the texts without a field in the catalog or the suite's model."""
LAUNCH = "launch."
EXPECT = "expect."
REFERENCE = "reference."
"""Prefixes of the names of launch settings, expectations and references."""
_REFERENCE_KEYS = ("reference", "lower", "upper")


class FormFields:
    """The fields of the form for cases of a benchmark, and the texts of a draft.

    Args:
        benchmark: The benchmark.
        draft: The case, without values that it inherits.
        defaults: The data of the suite's ``defaults:``, which may be invalid.
    """

    def __init__(self, benchmark: Benchmark, draft: CaseDraft, defaults: Any = None) -> None:
        self.benchmark = benchmark
        self.draft = draft
        self.defaults = defaults
        self.name_field, self.np_field, self.repeat_field = list_case_fields()
        self.param_fields = list_param_fields(benchmark)
        self.launch_fields = list_launch_fields()

    @cached_property
    def initial_texts(self) -> FormTexts:
        """The texts of the draft."""
        draft = self.draft
        text_by_name = {
            self.name_field.name: draft.name,
            self.repeat_field.name: "" if draft.repeat is None else str(draft.repeat),
            **{field.name: self._text(field) for field in (self.np_field, *self.param_fields)},
            **{
                LAUNCH + field.name: format_text(field, draft.launch[field.name])
                for field in self.launch_fields
                if field.name in draft.launch
            },
            IN_STEP: ", ".join(draft.zip),
            EXCLUDE: ", ".join(map(format_flow, draft.exclude)),
            COMMENT: draft.comment or "",
        }
        expect = [
            ExpectationTexts(
                metric, _format_bound(bounds.get("max")), _format_bound(bounds.get("min"))
            )
            for metric, bounds in draft.expect.items()
            if bounds.keys().isdisjoint((*_REFERENCE_KEYS, "systems"))
        ]
        return FormTexts(text_by_name, expect, [*_list_reference_texts(draft.expect)])

    @cached_property
    def _inherited(self) -> Mapping[str, Any]:
        entry = {"name": self.draft.name, "benchmark": self.benchmark.name}
        return select_inherited(self.defaults, entry)

    @cached_property
    def inherited_texts(self) -> Mapping[str, str]:
        """The texts of the values that empty fields inherit from the suite."""
        values = {self.parameter_name(key): v for key, v in self._inherited_params.items()}
        values |= {key: self._inherited[key] for key in ("np", "repeat") if key in self._inherited}
        fields = (self.np_field, self.repeat_field, *self.param_fields)
        return {
            field.name: format_text(field, values[field.name])
            for field in fields
            if field.name in values
        }

    @property
    def _inherited_params(self) -> Mapping[str, Any]:
        params: Mapping[str, Any] = self._inherited.get("params", {})
        return params

    @property
    def inherited_metrics(self) -> Sequence[str]:
        """The metrics with an expectation that cases inherit from the suite."""
        return tuple(self._inherited.get("expect", {}))

    def find_defaults(self, cases: Sequence[Case]) -> dict[str, str]:
        """Return the values of empty fields in the cases of a draft, as text.

        They follow from the fields that are not empty. A default that differs between the cases is
        `AUTO`.
        """
        if not cases:
            return {}
        first = cases[0]
        texts = format_default_texts(self.benchmark, first.params)
        defaults = {
            name: text if all(case.params[name] == first.params[name] for case in cases) else AUTO
            for name, text in texts.items()
        }
        has_one_np = first.np is not None and all(case.np == first.np for case in cases)
        defaults["np"] = str(first.np) if has_one_np else AUTO
        return defaults

    def find_key(self, section: Mapping[str, Any], name: str) -> str | None:
        """Return the name or alias under which a section has a parameter, if it has it."""
        return next((key for key in section if self.parameter_name(key) == name), None)

    def parameter_name(self, key: str) -> str:
        """Return the name of a parameter for its name or alias."""
        param = self.benchmark.find_param(key)
        return param.name if param else key

    def _text(self, field: Field) -> str:
        draft = self.draft
        for values_by_key in (draft.matrix, draft.zip):
            if key := self.find_key(values_by_key, field.name):
                return _format_sweep(field, values_by_key[key])
        if field is self.np_field:
            return "" if draft.np is None else str(draft.np)
        key = self.find_key(draft.params, field.name)
        return format_text(field, draft.params[key]) if key else ""


def _format_sweep(field: Field, values: Sequence[Any]) -> str:
    """Return the text of a sweep, which differs from that of a single value."""
    if field.kind in LIST_KINDS:
        values = [value if isinstance(value, list) else [value] for value in values]
    text = format_sweep(values)
    return text if is_sweep(field, text) else f"{text},"


def _list_reference_texts(expect: Mapping[str, Mapping[str, Any]]) -> Iterator[ReferenceTexts]:
    for metric, expectation in expect.items():
        reference_by_system = dict(expectation.get("systems", {}))
        if not expectation.keys().isdisjoint(_REFERENCE_KEYS):
            reference_by_system[""] = expectation
        for system, reference in reference_by_system.items():
            numbers = (_format_bound(reference.get(key)) for key in _REFERENCE_KEYS)
            yield ReferenceTexts(metric, system, *numbers)


def _format_bound(value: float | str | None) -> str:
    """Return the text of a bound: an expression without the quotes of YAML."""
    if value is None:
        return ""
    return value if isinstance(value, str) else format_flow(value)
