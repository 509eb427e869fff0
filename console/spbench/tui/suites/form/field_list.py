"""The rows of the form of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.widgets import Static

from spbench.suites.case import STATISTICS
from spbench.suites.expectations import list_metrics
from spbench.tui.form.field_row import FormRow, TextRow
from spbench.tui.form.row_list import RowList
from spbench.tui.form.texts import ExpectationTexts, FormTexts, ReferenceTexts
from spbench.tui.suites.form import form_texts
from spbench.tui.suites.form.metric_rows import ExpectRow, ReferenceRow
from spbench_core.catalog.benchmark import Metric

NO_EXPECTATION = ExpectationTexts()
NO_REFERENCE = ReferenceTexts()


class FieldList(RowList):
    """The rows of a case: keys, parameters, expectations, references, launch."""

    def __init__(self, fields: form_texts.FormFields, id: str) -> None:
        super().__init__(fields.initial_texts, fields.inherited_texts, id)
        self._fields = fields
        metrics = [metric.name for metric in self._list_metrics()]
        self._metric_names = [*metrics, *(f"{m}.{s}" for m in metrics for s in STATISTICS)]

    def _list_metrics(self) -> Sequence[Metric]:
        try:
            return list_metrics(self._fields.benchmark, self._fields.draft.params)
        except ExceptionGroup:  # the parameters of the draft are incomplete
            return list_metrics(self._fields.benchmark)

    def compose(self) -> ComposeResult:
        fields = self._fields
        text_by_name = fields.initial_texts.by_name
        yield Static("Case", classes="heading first")
        yield from self.build_field_rows([fields.name_field, fields.np_field, fields.repeat_field])
        comment = text_by_name[form_texts.COMMENT]
        yield TextRow(form_texts.COMMENT, "the lines above the case", comment, lines=True)
        yield Static("Parameters", classes="heading")
        yield from self.build_field_rows(fields.param_fields)
        in_step = text_by_name[form_texts.IN_STEP]
        yield TextRow(form_texts.IN_STEP, "names of swept parameters that change together", in_step)
        exclude = text_by_name[form_texts.EXCLUDE]
        yield TextRow(form_texts.EXCLUDE, "points to leave out: {key: value}", exclude)
        yield Static(f"Expectations{self._describe_inherited_metrics()}", classes="heading")
        for expected in (*fields.initial_texts.expect, NO_EXPECTATION):
            yield ExpectRow(self._metric_names, expected)
        yield Static("References with tolerances", classes="heading")
        for reference in (*fields.initial_texts.references, NO_REFERENCE):
            yield ReferenceRow(self._metric_names, reference)
        yield Static("Launch settings that differ from those of the suite", classes="heading")
        yield from self.build_field_rows(fields.launch_fields, form_texts.LAUNCH)

    def _describe_inherited_metrics(self) -> str:
        metrics = self._fields.inherited_metrics
        return f" (inherited from defaults: {', '.join(metrics)})" if metrics else ""

    @property
    def texts(self) -> FormTexts:
        """The current texts of all rows."""
        return FormTexts(
            super().texts.by_name,
            [row.texts for row in self._list_expect_rows()],
            [row.texts for row in self._list_reference_rows()],
        )

    def _list_expect_rows(self) -> list[ExpectRow]:
        return [row for row in self.query(ExpectRow) if any(row.texts)]

    def _list_reference_rows(self) -> list[ReferenceRow]:
        return [row for row in self.query(ReferenceRow) if any(row.texts)]

    def handle_change(self, row: FormRow) -> None:
        """Check a row, and add an empty one below the last that has several boxes."""
        super().handle_change(row)
        if isinstance(row, ExpectRow) and self._is_last_and_filled(row):
            self.mount_below(row, ExpectRow(self._metric_names, NO_EXPECTATION))
        if isinstance(row, ReferenceRow) and self._is_last_and_filled(row):
            self.mount_below(row, ReferenceRow(self._metric_names, NO_REFERENCE))

    def _is_last_and_filled(self, row: ExpectRow | ReferenceRow) -> bool:
        return row is self.query(type(row)).last() and any(row.texts)

    def show_errors(self, error_by_name: Mapping[str, str]) -> None:
        """Show the error of each row."""
        super().show_errors(error_by_name)
        for row_number, expect_row in enumerate(self._list_expect_rows()):
            expect_row.show_error(error_by_name.get(f"{form_texts.EXPECT}{row_number}"))
        for row_number, reference_row in enumerate(self._list_reference_rows()):
            reference_row.show_error(error_by_name.get(f"{form_texts.REFERENCE}{row_number}"))
