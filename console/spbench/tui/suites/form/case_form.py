"""The form of a case: fields from the catalog, and a preview of the YAML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spbench.suites.edit.draft import CaseDraft
from spbench.suites.file_errors import CaseError
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.form.draft_form import DraftForm, FormReading
from spbench.tui.suites.form.draft_reader import read_form_draft
from spbench.tui.suites.form.field_list import FieldList
from spbench.tui.suites.form.form_texts import LAUNCH, FormFields
from spbench.tui.suites.form.preview import (
    ForecastSuite,
    Preview,
    WriteDraft,
    build_preview,
)
from spbench_core.catalog.benchmark import Benchmark


class CaseForm(DraftForm):
    """A form for one case that returns the changed text, or None if it is left.

    Args:
        benchmark: The benchmark of the case.
        draft: The initial case.
        write: Writes a draft into the text of the suite.
        path: The file of the suite.
        submit_label: The label of the button: ``Insert`` or ``Change``.
        forecast: Returns the forecast of a suite.
        defaults: The data of the suite's ``defaults:``.
    """

    HELP = """\
A case of a benchmark. An empty field has the default that it shows. Several values make a sweep:
64, 128, 256 or 1..9 +2 or 8..64 *2. Each value is checked as you type, and the preview shows the
YAML that will be written. Ctrl+F searches the fields. F3 shows only those that are set here, which
• marks, and Escape shows all again. Up and down move between fields, → takes a suggestion, and F2
lists the choices of a field. Ctrl+S writes the case into the text, where Ctrl+Z undoes it. Escape
leaves the form, after a question if you have changed something."""

    def __init__(
        self,
        benchmark: Benchmark,
        draft: CaseDraft,
        write: WriteDraft,
        path: Path,
        submit_label: str,
        forecast: ForecastSuite,
        defaults: Any = None,
    ) -> None:
        super().__init__(f"{benchmark.name}: {benchmark.summary}", submit_label)
        self._fields = FormFields(benchmark, draft, defaults)
        self._write = write
        self._path = path
        self._forecast = forecast

    def build_rows(self) -> FieldList:
        """Return the list of the fields of the case."""
        return FieldList(self._fields, id="fields")

    def read_texts(self, texts: FormTexts) -> FormReading:
        """Return the errors in the texts, or how to preview the case."""
        result = read_form_draft(self._fields, texts)
        if result.draft is None:
            return FormReading(result.errors, None)
        build = partial(
            build_preview,
            result.draft,
            self._write,
            self._path,
            self._forecast,
            self._fields.defaults,
        )
        return FormReading(result.errors, build)

    def find_key(self, error: CaseError) -> str:
        """Return the key of the text of a key of the case."""
        (section, *names) = error.path[2:] or ("",)
        if section in ("params", "matrix", "zip") and names:
            return self._fields.parameter_name(str(names[0]))
        if section == "launch" and names:
            return f"{LAUNCH}{names[0]}"
        return str(section)

    def find_defaults(self, preview: Preview) -> Mapping[str, str]:
        """Return the values of empty fields in the cases of the preview."""
        return self._fields.find_defaults(preview.cases)
