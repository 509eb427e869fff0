"""The form of a suite's head: name, description, defaults and launch settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Static

from spbench.suites.edit.compose import EditedText
from spbench.suites.edit.head import HeadDraft
from spbench.suites.file_errors import CaseError
from spbench.tui.dialogs import Confirm
from spbench.tui.form.row_list import RowList
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.form.draft_form import DraftForm, FormReading
from spbench.tui.suites.form.form_texts import LAUNCH
from spbench.tui.suites.form.preview import ForecastSuite
from spbench.tui.suites.form.suite_preview import WriteHead, build_suite_preview
from spbench.tui.suites.form.suite_texts import DEFAULTS, PARAMS, SuiteFields, read_head_draft
from spbench_core.catalog.benchmark import Benchmark


class SuiteRows(RowList):
    """The rows of a suite: its keys, its defaults and its launch settings."""

    def __init__(self, fields: SuiteFields, id: str) -> None:
        super().__init__(fields.initial_texts, {}, id)
        self._fields = fields

    def compose(self) -> ComposeResult:
        fields = self._fields
        yield Static("Suite", classes="heading first")
        yield from self.build_field_rows(fields.suite_fields)
        others = ", ".join(fields.other_keys)
        note = f" (in the text also: {others})" if others else ""
        yield Static(f"Defaults that each case inherits{note}", classes="heading")
        for row in self.build_field_rows(fields.default_fields, DEFAULTS):
            row.add_class("default")
            # The form opens on the first one, and a key typed there must not replace it.
            row.select_on_focus = False
            yield row
        yield Static("Default parameters, for the cases that have them", classes="heading")
        yield from self.build_field_rows(fields.param_fields, PARAMS)
        yield Static("Launch settings of all cases", classes="heading")
        yield from self.build_field_rows(fields.launch_fields, LAUNCH)


class SuiteForm(DraftForm):
    """A form for the head of a suite, which returns the changed text or None.

    Args:
        draft: The initial head.
        benchmarks: The benchmarks of the suite's cases.
        write: Writes a head into the text of the suite.
        path: The file of the suite.
        forecast: Returns the forecast of a suite.
    """

    AUTO_FOCUS = ".default Input"
    HELP = """\
The suite itself: its name and description, and the values that its cases inherit. A case inherits a
default unless it sets the value. With several benchmarks, the parameters that two or more of them
have are listed. An empty field writes nothing. Each value is checked as you type, and the preview
shows the YAML that will be written. Ctrl+F searches the fields. F3 shows only those that are set
here, which • marks, and Escape shows all again. F2 lists the choices of a field. Ctrl+S writes the
suite into the text, where Ctrl+Z undoes it. Escape leaves the form, after a question if you have
changed something."""

    def __init__(
        self,
        draft: HeadDraft,
        benchmarks: Sequence[Benchmark],
        write: WriteHead,
        path: Path,
        forecast: ForecastSuite,
    ) -> None:
        super().__init__(f"Suite {draft.name}: name, description and defaults", "Change")
        self._fields = SuiteFields(draft, benchmarks)
        self._write = write
        self._path = path
        self._forecast = forecast

    def build_rows(self) -> SuiteRows:
        """Return the list of the fields of the suite."""
        return SuiteRows(self._fields, id="fields")

    def find_key(self, error: CaseError) -> str:
        """Return the key of the text of a default."""
        (_, section, *names) = error.default_path or ("", "")
        if section == "params" and names:
            return f"{PARAMS}{self._fields.find_name(str(names[0]))}"
        return f"{DEFAULTS}{section}"

    async def ask_to_accept(self) -> EditedText | None:
        """Ask whether to write defaults that do not fit a case; None: keep editing."""
        preview = self.preview
        if preview is None or not preview.conflicts:
            return None
        keys = [self.find_key(error) for error in preview.case_errors]
        names = list(dict.fromkeys(key.removeprefix(DEFAULTS) for key in keys))
        count = len({error.index for error in preview.case_errors})
        others = f" and {count - 1} more" if count > 1 else ""
        question = (
            f"These defaults do not fit a case{others}.\n{preview.conflicts[0]}.\nWrite them "
            "anyway? Nothing can be run until the case is changed: Cases shows its error."
        )
        dialog = Confirm(question, "Write anyway", f"Back to {names[0]}")
        return preview.edited if await self.app.push_screen_wait(dialog) else None

    def read_texts(self, texts: FormTexts) -> FormReading:
        """Return the errors in the texts, or how to preview the head."""
        result = read_head_draft(self._fields, texts)
        if result.draft is None:
            return FormReading(result.errors, None)
        build = partial(build_suite_preview, result.draft, self._write, self._path, self._forecast)
        return FormReading(result.errors, build)
