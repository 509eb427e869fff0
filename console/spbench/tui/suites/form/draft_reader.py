"""Reading the draft of a case from the texts of its form.

Unchanged texts keep the value and its spelling from the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench.errors import SpbenchError
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.fields import Field, list_bound_fields, list_reference_fields
from spbench.suites.edit.form_values import parse_sweep
from spbench.suites.yaml_nodes import YamlError, parse_yaml
from spbench.tui.form.text_reader import TextReader
from spbench.tui.form.texts import FormTexts, is_sweep
from spbench.tui.suites.form.form_texts import (
    COMMENT,
    EXCLUDE,
    EXPECT,
    IN_STEP,
    LAUNCH,
    REFERENCE,
    FormFields,
)

_NP = "np"


@dataclass(frozen=True, slots=True)
class DraftResult:
    """The result of reading the texts of a form.

    Attributes:
        draft: The case; None if there are errors.
        errors: Error messages by the name of the text.
    """

    draft: CaseDraft | None
    errors: Mapping[str, str]


def read_form_draft(fields: FormFields, form_texts: FormTexts) -> DraftResult:
    """Return the case from the texts of a form, or the errors in them."""
    return _Reader(fields, form_texts).read()


class _Reader(TextReader):
    """A reader of one state of the texts of a case."""

    def __init__(self, fields: FormFields, form_texts: FormTexts) -> None:
        super().__init__(fields.initial_texts, form_texts)
        self._fields = fields
        draft = fields.draft
        # np is assigned like a parameter, and moved to its own key at the end.
        self._params = dict(draft.params) | ({} if draft.np is None else {_NP: draft.np})
        self._matrix = dict(draft.matrix)
        self._zip = dict(draft.zip)

    def read(self) -> DraftResult:
        initial_draft = self._fields.draft
        self._assign_parameters(self._read_swept_together())
        draft = replace(
            initial_draft,
            name=self.read_if_changed(self._fields.name_field, initial_draft.name),
            repeat=self._read_repeat(),
            np=self._params.pop(_NP, None),
            params=self._params,
            matrix=self._matrix,
            zip=self._zip,
            exclude=self._read_exclude(),
            expect=self._read_expectations(),
            launch=self.read_fields(self._fields.launch_fields, LAUNCH, initial_draft.launch),
            comment=self.text(COMMENT) or None,
        )
        return DraftResult(None if self.errors else draft, self.errors)

    def _read_repeat(self) -> int | None:
        """Return the repeats; None if an empty field gives the same number."""
        field = self._fields.repeat_field
        if self.is_unchanged(field.name):
            return self._fields.draft.repeat
        text = self.text(field.name)
        same_text = self._fields.inherited_texts.get(field.name, field.default)
        repeat: int | None = None
        if text and text != same_text:
            repeat = self.parse_value(field, text, field.name)
        return repeat

    def _read_swept_together(self) -> dict[str, str]:
        """Return the parameters that are swept together, with their names in the text."""
        typed_names = (name.strip() for name in self.text(IN_STEP).split(","))
        return {self._fields.parameter_name(name): name for name in typed_names if name}

    def _assign_parameters(self, typed_name_by_parameter: Mapping[str, str]) -> None:
        for field in (self._fields.np_field, *self._fields.param_fields):
            if not self.is_unchanged(field.name):
                self._assign_parameter(field)
        for name in [*self._matrix]:
            if self._fields.parameter_name(name) in typed_name_by_parameter:
                self._zip[name] = self._matrix.pop(name)
        for name in [*self._zip]:
            if self._fields.parameter_name(name) not in typed_name_by_parameter:
                self._matrix[name] = self._zip.pop(name)
        swept = {self._fields.parameter_name(name) for name in self._zip}
        for name, typed_name in typed_name_by_parameter.items():
            if name not in swept:
                self.errors.setdefault(IN_STEP, f"{typed_name!r} has no list of values above")

    def _assign_parameter(self, field: Field) -> None:
        """Assign no, one or several values to a parameter, as given by its text."""
        sections = (self._params, self._matrix, self._zip)
        keys = [self._fields.find_key(section, field.name) for section in sections]
        key = next(filter(None, keys), field.name)
        text = self.text(field.name)
        if is_sweep(field, text):
            if not (keys[1] or keys[2]):
                self._params.pop(key, None)
            try:
                (self._zip if keys[2] else self._matrix)[key] = parse_sweep(field, text)
            except SpbenchError as error:
                self.errors[field.name] = str(error)
            return
        for section in (self._matrix, self._zip):
            section.pop(key, None)
        if text:
            self._params[key] = self.parse_value(field, text, field.name)
        else:
            self._params.pop(key, None)

    def _read_exclude(self) -> Sequence[Mapping[str, Any]]:
        if self.is_unchanged(EXCLUDE):
            return self._fields.draft.exclude
        try:
            rules = parse_yaml(f"[{self.text(EXCLUDE)}]").root.data
        except YamlError:
            rules = None
        if isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules):
            return rules
        self.errors[EXCLUDE] = "write points to leave out as {key: value, key: value}, {...}"
        return ()

    def _read_expectations(self) -> Mapping[str, Mapping[str, Any]]:
        initial = self._fields.initial_texts
        form_texts = self.form_texts
        if (form_texts.expect, form_texts.references) == (initial.expect, initial.references):
            return self._fields.draft.expect
        expectation_by_metric = self._read_bounds()
        self._add_references(expectation_by_metric)
        return expectation_by_metric

    def _read_bounds(self) -> dict[str, dict[str, Any]]:
        bounds_by_metric: dict[str, dict[str, Any]] = {}
        for row, (metric, *bound_texts) in enumerate(self.form_texts.expect):
            name = f"{EXPECT}{row}"
            bounds = {}
            for field, text in zip(list_bound_fields(metric), bound_texts, strict=True):
                if text.strip():
                    bounds[field.name] = self.parse_value(field, text, name)
            if bounds and not metric:
                self.errors[name] = "name the metric that these bounds are for"
            elif metric and not bounds:
                self.errors[name] = f"{metric} has no bound: give max, min or both"
            elif metric in bounds_by_metric:
                self.errors[name] = f"duplicate {metric}"
            elif metric:
                bounds_by_metric[metric] = bounds
        return bounds_by_metric

    def _add_references(self, expectation_by_metric: dict[str, dict[str, Any]]) -> None:
        for row, (metric, system, *number_texts) in enumerate(self.form_texts.references):
            name = f"{REFERENCE}{row}"
            fields = zip(list_reference_fields(metric), number_texts, strict=True)
            reference = {
                field.name: self.parse_value(field, text, name)
                for field, text in fields
                if text.strip()
            }
            before = expectation_by_metric.get(metric, {"systems": {}} if system else {})
            if not metric:
                self.errors[name] = "name the metric that this reference is for"
            elif "reference" not in reference:
                self.errors[name] = f"{metric} has no reference: give a number above 0"
            elif len(reference) == 1:
                self.errors[name] = f"{metric} has no tolerance: give lower, upper or both"
            elif system and system not in before.get("systems", (system,)):
                before["systems"][system] = reference
                expectation_by_metric[metric] = before
            elif system or before:
                title = f"{metric} of {system}" if "systems" in before and system else metric
                self.errors[name] = f"duplicate {title}"
            else:
                expectation_by_metric[metric] = reference
