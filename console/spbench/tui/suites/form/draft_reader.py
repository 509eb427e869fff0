"""Reads the draft of a case from the texts of its form.

What the user leaves as it was stays as it stands in the file, however it is written there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench.errors import SpbenchError
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.field import Field
from spbench.suites.edit.fields import list_bound_fields, list_reference_fields
from spbench.suites.edit.typed import parse_sweep, parse_text
from spbench.suites.yaml_nodes import YamlError, parse_yaml
from spbench.tui.suites.form.form_texts import (
    COMMENT,
    EXCLUDE,
    EXPECT,
    IN_STEP,
    LAUNCH,
    REFERENCE,
    CaseTexts,
    FormTexts,
    is_sweep,
)

_NP = "np"


@dataclass(frozen=True, slots=True)
class DraftResult:
    """The result of reading a form's texts.

    Attributes:
        draft: The case; None where there are complaints.
        complaints: The name of each text that cannot be read, and why in one sentence.
    """

    draft: CaseDraft | None
    errors: Mapping[str, str]


def read_draft(form: CaseTexts, typed: FormTexts) -> DraftResult:
    """Return the case that the texts of a form make, or the reasons why they make none."""
    return _Reader(form, typed).read()


class _Reader:
    """Reads one state of a form's texts."""

    def __init__(self, form: CaseTexts, typed: FormTexts) -> None:
        self._form = form
        self._typed = typed
        self._complaints: dict[str, str] = {}
        draft = form.draft
        # np is set like a parameter, and goes back to its own key at the end.
        self._params = dict(draft.params) | ({} if draft.np is None else {_NP: draft.np})
        self._matrix = dict(draft.matrix)
        self._zip = dict(draft.zip)

    def read(self) -> DraftResult:
        form = self._form
        before = self._form.draft
        self._place(self._steps())
        draft = replace(
            before,
            name=self._one(form.name_field, before.name),
            repeat=self._one(form.repeat_field, before.repeat) if self._text("repeat") else 1,
            np=self._params.pop(_NP, None),
            params=self._params,
            matrix=self._matrix,
            zip=self._zip,
            exclude=self._exclude(),
            expect=self._expected(),
            launch=self._launch(),
            comment=self._text(COMMENT) or None,
        )
        return DraftResult(None if self._complaints else draft, self._complaints)

    def _text(self, name: str) -> str:
        return self._typed.texts.get(name, "").strip()

    def _same(self, name: str) -> bool:
        return self._text(name) == self._form.initial.texts.get(name, "").strip()

    def _one(self, field: Field, before: Any, name: str = "") -> Any:
        name = name or field.name
        return before if self._same(name) else self._value(field, self._text(name), name)

    def _value(self, field: Field, text: str, name: str) -> Any:
        try:
            return parse_text(field, text)
        except SpbenchError as error:
            self._complaints[name] = str(error)
            return None

    # Parameters and np

    def _steps(self) -> dict[str, str]:
        """Return the names that are swept in step, each as it is written there."""
        words = (word.strip() for word in self._text(IN_STEP).split(","))
        return {self._form.parameter_name(word): word for word in words if word}

    def _place(self, steps: Mapping[str, str]) -> None:
        for field in self._form.swept_fields:
            if not self._same(field.name):
                self._set(field)
        for name in [*self._matrix]:
            if self._form.parameter_name(name) in steps:
                self._zip[name] = self._matrix.pop(name)
        for name in [*self._zip]:
            if self._form.parameter_name(name) not in steps:
                self._matrix[name] = self._zip.pop(name)
        swept = {self._form.parameter_name(name) for name in self._zip}
        for name, word in steps.items():
            if name not in swept:
                self._complaints.setdefault(IN_STEP, f"{word!r} has no list of values above")

    def _set(self, field: Field) -> None:
        """Give a parameter what is typed for it: no value, one, or several."""
        sections = (self._params, self._matrix, self._zip)
        keys = [self._form.find_key(section, field.name) for section in sections]
        key = next(filter(None, keys), field.name)
        text = self._text(field.name)
        if is_sweep(field, text):
            if not (keys[1] or keys[2]):
                self._params.pop(key, None)
            try:
                (self._zip if keys[2] else self._matrix)[key] = parse_sweep(field, text)
            except SpbenchError as error:
                self._complaints[field.name] = str(error)
            return
        for section in (self._matrix, self._zip):
            section.pop(key, None)
        if text:
            self._params[key] = self._value(field, text, field.name)
        else:
            self._params.pop(key, None)

    # Everything else

    def _exclude(self) -> Sequence[Mapping[str, Any]]:
        if self._same(EXCLUDE):
            return self._form.draft.exclude
        try:
            rules = parse_yaml(f"[{self._text(EXCLUDE)}]").root.data
        except YamlError:
            rules = None
        if isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules):
            return rules
        self._complaints[EXCLUDE] = "write points to leave out as {key: value, key: value}, {...}"
        return ()

    def _launch(self) -> Mapping[str, Any]:
        set_here = dict(self._form.draft.launch)
        for field in self._form.launch_fields:
            name = LAUNCH + field.name
            if not self._text(name):
                set_here.pop(field.name, None)
            else:
                set_here[field.name] = self._one(field, set_here.get(field.name), name)
        return set_here

    def _expected(self) -> Mapping[str, Mapping[str, Any]]:
        first = self._form.initial
        if (self._typed.expect, self._typed.references) == (first.expect, first.references):
            return self._form.draft.expect
        read = self._bounds()
        self._add_references(read)
        return read

    def _bounds(self) -> dict[str, dict[str, Any]]:
        read: dict[str, dict[str, Any]] = {}
        for row, (metric, *typed) in enumerate(self._typed.expect):
            name = f"{EXPECT}{row}"
            bounds = {}
            for field, text in zip(list_bound_fields(metric), typed, strict=True):
                if text.strip():
                    bounds[field.name] = self._value(field, text, name)
            if bounds and not metric:
                self._complaints[name] = "name the metric that these bounds are for"
            elif metric and not bounds:
                self._complaints[name] = f"{metric} has no bound: give max, min or both"
            elif metric in read:
                self._complaints[name] = f"duplicate {metric}"
            elif metric:
                read[metric] = bounds
        return read

    def _add_references(self, read: dict[str, dict[str, Any]]) -> None:
        for row, (metric, system, *typed) in enumerate(self._typed.references):
            name = f"{REFERENCE}{row}"
            fields = zip(list_reference_fields(metric), typed, strict=True)
            entry = {
                field.name: self._value(field, text, name) for field, text in fields if text.strip()
            }
            before = read.get(metric, {"systems": {}} if system else {})
            if not metric:
                self._complaints[name] = "name the metric that this reference is for"
            elif "reference" not in entry:
                self._complaints[name] = f"{metric} has no reference: give a number above 0"
            elif len(entry) == 1:
                self._complaints[name] = f"{metric} has no tolerance: give lower, upper or both"
            elif system and system not in before.get("systems", (system,)):
                before["systems"][system] = entry
                read[metric] = before
            elif system or before:
                which = f"{metric} of {system}" if "systems" in before and system else metric
                self._complaints[name] = f"duplicate {which}"
            else:
                read[metric] = entry
