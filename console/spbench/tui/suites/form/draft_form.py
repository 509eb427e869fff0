"""A form that writes a part of a suite: fields, and a preview of the YAML."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from spbench.suites.edit.compose import EditedText
from spbench.suites.file_errors import CaseError
from spbench.tui.form.field_form import FieldForm
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.case_rows import EXCESS_SIGN
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.form.preview import Preview


@dataclass(frozen=True, slots=True)
class FormReading:
    """The result of reading the texts of a form.

    Attributes:
        errors: Error messages by the name of the text.
        build_preview: Builds the preview in a thread; None if there are errors.
    """

    errors: Mapping[str, str]
    build_preview: Callable[[], Preview] | None


class DraftForm(FieldForm[EditedText]):
    """A form that returns the changed text of a suite, or None if it is left.

    A subclass yields its rows in `build_rows`, and reads their texts in `read_texts`.

    Attributes:
        preview: The last preview; None before the first one, or while a text is invalid.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5", "explain_run", "Run", show=False, id="form.run", tooltip="How to run it"),
    ]
    preview: Preview | None = None

    @abstractmethod
    def read_texts(self, texts: FormTexts) -> FormReading:
        """Return the errors in the texts, or how to build their preview."""

    @abstractmethod
    def find_key(self, error: CaseError) -> str:
        """Return the key of the text that cures an error; it may have no row."""

    def find_defaults(self, preview: Preview) -> Mapping[str, str]:
        """Return the defaults of empty fields, which follow from other fields."""
        return {}

    def compose_outcome(self) -> ComposeResult:
        """Yield the preview of the YAML."""
        preview_editor = SuiteEditor(id="preview")
        preview_editor.read_only = True
        preview_editor.can_focus = False
        yield preview_editor

    def action_explain_run(self) -> None:
        """Show the keys that write and run the cases."""
        hint = "Ctrl+S writes this into the text of the suite. F5 on the page then runs it."
        self.query_one("#hint", Static).update(hint)

    async def show_outcome(self) -> EditedText | None:
        """Show the preview and return the changed text; None if a text is invalid."""
        reading = self.read_texts(self.texts)
        if reading.build_preview is None:
            self.row_list.show_errors(reading.errors)
            self.preview = None
            self.show_problems(reading.errors.values())
            return None
        preview = await asyncio.to_thread(reading.build_preview)
        self.preview = preview
        self._show_lines(preview)
        self.row_list.show_errors(
            {self.find_key(error): error.message for error in preview.case_errors}
        )
        self.row_list.show_defaults(self.find_defaults(preview))
        if preview.problems:
            self.show_problems(preview.problems)
            return None
        warning = f"{EXCESS_SIGN} {preview.warning}" if preview.warning else ""
        message = "\n".join(filter(None, (preview.summary, warning)))
        self.show_message(message, warned=bool(warning))
        return preview.edited

    def _show_lines(self, preview: Preview) -> None:
        """Show the lines of the preview, and scroll to those that have changed."""
        preview_editor = self.query_one("#preview", SuiteEditor)
        old_lines = preview_editor.text.splitlines()
        lines = preview.lines.splitlines()
        if old_lines == lines:
            return
        preview_editor.line_number_start = preview.first_line
        preview_editor.load_text(preview.lines)
        if old_lines:
            first_row = _count_common_lines(old_lines, lines)
            last_row = len(lines) - 1 - _count_common_lines(old_lines[::-1], lines[::-1])
            for row in (first_row, last_row):  # a low pane shows only the last
                preview_editor.move_cursor((max(0, min(row, len(lines) - 1)), 0))


def _count_common_lines(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of lines at the start that are equal."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((row for row, (a, b) in pairs if a != b), min(len(old), len(new)))
