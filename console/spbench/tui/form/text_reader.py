"""Reading the texts of a form; unchanged ones keep the value from the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spbench.errors import SpbenchError
from spbench.suites.edit.fields import Field
from spbench.suites.edit.form_values import parse_text
from spbench.tui.form.texts import FormTexts


class TextReader:
    """A reader of one state of a form's texts.

    Attributes:
        errors: Error messages by the name of the text.
    """

    def __init__(self, initial: FormTexts, form_texts: FormTexts) -> None:
        self._initial = initial
        self.form_texts = form_texts
        self.errors: dict[str, str] = {}

    def text(self, name: str) -> str:
        """Return a text without blanks at its ends."""
        return self.form_texts.by_name.get(name, "").strip()

    def is_unchanged(self, name: str) -> bool:
        """Return whether a text is that of the file."""
        return self.text(name) == self._initial.by_name.get(name, "").strip()

    def read_if_changed(self, field: Field, before: Any, name: str = "") -> Any:
        """Return the value of a text, or that of the file if the text is unchanged."""
        name = name or field.name
        return before if self.is_unchanged(name) else self.parse_value(field, self.text(name), name)

    def parse_value(self, field: Field, text: str, name: str) -> Any:
        """Return the value of a text; None after recording an error."""
        try:
            return parse_text(field, text)
        except SpbenchError as error:
            self.errors[name] = str(error)
            return None

    def read_fields(
        self, fields: Iterable[Field], prefix: str, before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the values by name, with those of fields that are not empty changed."""
        values = dict(before)
        for field in fields:
            name = prefix + field.name
            if self.text(name):
                values[field.name] = self.read_if_changed(field, values.get(field.name), name)
            else:
                values.pop(field.name, None)
        return values
