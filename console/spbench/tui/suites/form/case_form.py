"""The form of a case: fields from the catalog, and a preview of the YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Static, TextArea

from spbench.suites.case import STATISTICS
from spbench.suites.edit.compose import EditedText
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.fields import Field
from spbench.suites.expectations import list_metrics
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import Confirm, Modal
from spbench.tui.suites.editor import PROBLEM_SIGN, SuiteEditor
from spbench.tui.suites.form import form_texts
from spbench.tui.suites.form.draft_reader import DraftResult, read_form_draft
from spbench.tui.suites.form.field_row import ExpectRow, FieldRow, FormRow, ReferenceRow, TextRow
from spbench.tui.suites.form.preview import EstimateSuite, Preview, WriteDraft, build_preview
from spbench_core.catalog.benchmark import Benchmark, Metric

PREVIEW_DELAY = 0.12
"""Time without a key until the preview is updated, in seconds."""
NO_EXPECTATION = form_texts.ExpectationTexts()
NO_REFERENCE = form_texts.ReferenceTexts()
_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (140, "-wide")]
"""With 140 columns the preview is next to the fields."""


class Fields(VerticalScroll, can_focus=False, inherit_bindings=False):
    """The rows; up and down move between them, unless a field handles these keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next", id="form.next", tooltip="The next field"),
        Binding("up", "app.focus_previous", "Before", id="form.before", tooltip="The field before"),
    ]


class CaseForm(Modal[EditedText | None]):
    """A form for one case that returns the changed text, or None if it is left.

    Args:
        benchmark: The benchmark of the case.
        draft: The initial case.
        write: Writes a draft into the text of the suite.
        path: The file of the suite.
        submit_label: The label of the button: ``Insert`` or ``Change``.
        estimate: Returns the estimated duration of a suite.
    """

    HELP = """\
A case of a benchmark. An empty field has the default that it shows; one with several values is
swept: 64, 128, 256 or 64..1024 *2 or 1..9 +2. What is typed is checked at once, and beside it
stands the YAML that will be written. Up and down go from field to field, → takes a suggestion, and
F2 lists what a field can be, where that is a few words. Ctrl+S writes the case into the text, where
Ctrl+Z takes it back; Escape leaves, after a question where something was typed."""
    HORIZONTAL_BREAKPOINTS = _SIZES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s", "write", "Write", id="form.write", tooltip="Write the case", priority=True
        ),
        Binding("f2", "choose", "List", id="form.choose", tooltip="List what the field can be"),
        Binding("escape", "leave", "Cancel", id="form.leave", tooltip="Leave without a change"),
    ]
    CSS = """
    CaseForm { background: $surface; }
    CaseForm > #form {
        width: 100%; max-width: 100%; height: 100%; max-height: 100%; padding: 0 1;
    }
    CaseForm #sides { height: 1fr; margin: 0; }
    CaseForm.-narrow #sides { layout: vertical; }
    CaseForm #fields { width: 3fr; height: 1fr; scrollbar-size: 0 1; }
    CaseForm #outcome { width: 2fr; height: 1fr; }
    CaseForm.-wide #outcome { border-left: solid $foreground 30%; padding-left: 1; }
    CaseForm.-narrow #fields, CaseForm.-narrow #outcome { width: 1fr; }
    CaseForm.-narrow #fields { height: 3fr; }
    CaseForm.-narrow #outcome { height: 2fr; border-top: solid $foreground 30%; }
    CaseForm .heading { color: $text-accent; text-style: bold; margin-top: 1; }
    CaseForm .heading.first { margin-top: 0; }
    CaseForm #hint { height: 2; color: $text-muted; }
    CaseForm #message { height: auto; max-height: 6; text-style: bold; }
    CaseForm #message.wrong { color: $text-error; }
    CaseForm #buttons { margin-top: 0; }
    CaseForm FormRow TextArea { border: none; background: $panel; }
    CaseForm FormRow TextArea:focus { border: none; background: $primary 25%; }
    """

    def __init__(
        self,
        benchmark: Benchmark,
        draft: CaseDraft,
        write: WriteDraft,
        path: Path,
        submit_label: str,
        estimate: EstimateSuite,
    ) -> None:
        super().__init__()
        self._estimate = estimate
        self._fields = form_texts.FormFields(benchmark, draft)
        self._write = write
        self._path = path
        self._submit_label = submit_label
        self._metric_names = [metric.name for metric in self._list_metrics()]
        self._preview_timer: Timer | None = None
        self._initial_texts = form_texts.FormTexts({})

    def _list_metrics(self) -> tuple[Metric, ...]:
        draft = self._fields.draft
        try:
            return list_metrics(self._fields.benchmark, draft.params)
        except ExceptionGroup:  # the parameters of the draft are incomplete
            return list_metrics(self._fields.benchmark)

    def compose(self) -> ComposeResult:
        benchmark = self._fields.benchmark
        with Vertical(id="form") as frame:
            frame.border_title = Content(f"{benchmark.name}: {benchmark.summary}")
            with Horizontal(id="sides"):
                with Fields(id="fields"):
                    yield from self._build_rows()
                with Vertical(id="outcome"):
                    preview_editor = SuiteEditor(id="preview")
                    preview_editor.read_only = True
                    preview_editor.can_focus = False
                    yield preview_editor
                    yield Static("", id="message", markup=False)
            yield Static("", id="hint", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel (Esc)", id="leave", compact=True)
                yield Button(f"{self._submit_label} (Ctrl+S)", "primary", id="write", compact=True)

    def _build_rows(self) -> Iterable[Static | FormRow]:
        fields = self._fields
        text_by_name = fields.initial_texts.by_name
        yield Static("Case", classes="heading first")
        yield from self._build_fields([fields.name_field, fields.np_field, fields.repeat_field])
        yield TextRow(
            form_texts.COMMENT,
            "stands above the case",
            text_by_name[form_texts.COMMENT],
            lines=True,
        )
        yield Static("Parameters", classes="heading")
        yield from self._build_fields(fields.param_fields)
        yield TextRow(
            form_texts.IN_STEP, "swept names that change together", text_by_name[form_texts.IN_STEP]
        )
        yield TextRow(
            form_texts.EXCLUDE,
            "points to leave out: {key: value}",
            text_by_name[form_texts.EXCLUDE],
        )
        yield Static("Expectations", classes="heading")
        for expected in (*fields.initial_texts.expect, NO_EXPECTATION):
            yield self._build_expect_row(expected)
        yield Static("References with tolerances", classes="heading")
        for reference in (*fields.initial_texts.references, NO_REFERENCE):
            yield self._build_reference_row(reference)
        yield Static("Launch, where it differs from the suite's", classes="heading")
        yield from self._build_fields(fields.launch_fields, form_texts.LAUNCH)

    def _build_fields(self, fields: Iterable[Field], prefix: str = "") -> Iterable[FieldRow]:
        for field in fields:
            key = prefix + field.name
            yield FieldRow(field, key, self._fields.initial_texts.by_name.get(key, ""))

    def _build_expect_row(self, expected: form_texts.ExpectationTexts) -> ExpectRow:
        return ExpectRow(self._list_metric_names(), expected)

    def _build_reference_row(self, reference: form_texts.ReferenceTexts) -> ReferenceRow:
        return ReferenceRow(self._list_metric_names(), reference)

    def _list_metric_names(self) -> list[str]:
        """Return the metrics, then each metric with its statistics."""
        return [*self._metric_names, *(f"{m}.{s}" for m in self._metric_names for s in STATISTICS)]

    @property
    def texts(self) -> form_texts.FormTexts:
        """The current texts of all fields."""
        text_by_name = {row.key: row.text for row in self.query_one("#fields").query(TextRow)}
        return form_texts.FormTexts(
            text_by_name,
            [row.texts for row in self._list_expect_rows()],
            [row.texts for row in self._list_reference_rows()],
        )

    def _list_expect_rows(self) -> list[ExpectRow]:
        return [row for row in self.query(ExpectRow) if any(row.texts)]

    def _list_reference_rows(self) -> list[ReferenceRow]:
        return [row for row in self.query(ReferenceRow) if any(row.texts)]

    def on_mount(self) -> None:
        """Show the preview of the initial draft."""
        self._initial_texts = self.texts
        self._update_preview()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Check the text and update the preview."""
        self._handle_change(event.input)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Check the text and update the preview."""
        self._handle_change(event.text_area)

    def _handle_change(self, box: Input | TextArea) -> None:
        row = self._find_row(box)
        if row is None:
            return
        row.check()
        if isinstance(row, ExpectRow) and self._is_last_and_filled(row):
            self.query_one("#fields").mount(self._build_expect_row(NO_EXPECTATION), after=row)
        if isinstance(row, ReferenceRow) and self._is_last_and_filled(row):
            self.query_one("#fields").mount(self._build_reference_row(NO_REFERENCE), after=row)
        self._schedule_preview()

    def _is_last_and_filled(self, row: ExpectRow | ReferenceRow) -> bool:
        return row is self.query(type(row)).last() and any(row.texts)

    def on_input_submitted(self) -> None:
        """Go to the next field."""
        self.focus_next()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the hint of the focused field."""
        row = self._find_row(event.widget)
        self.query_one("#hint", Static).update(row.hint if row else "")

    def _schedule_preview(self) -> None:
        if self._preview_timer is not None:
            self._preview_timer.stop()
        self._preview_timer = self.set_timer(PREVIEW_DELAY, self._update_preview)

    @work(exclusive=True, group="preview")
    async def _update_preview(self) -> None:
        await self._show_preview()

    async def _show_preview(self) -> Preview | None:
        """Show the preview of the texts and return it; None if a text is invalid."""
        draft_result = read_form_draft(self._fields, self.texts)
        self._show_errors(draft_result)
        if draft_result.draft is None:
            self._show_problems(draft_result.errors.values())
            return None
        preview = await asyncio.to_thread(
            build_preview, draft_result.draft, self._write, self._path, self._estimate
        )
        # In the meantime the form may have been left, which removes its widgets.
        if not (self.is_running and self.app.is_running):
            return None
        preview_editor = self.query_one("#preview", SuiteEditor)
        if preview_editor.text != preview.lines:
            preview_editor.line_number_start = preview.first_line
            preview_editor.load_text(preview.lines)
        if preview.problems:
            self._show_problems(preview.problems)
        else:
            self._show_message(preview.summary)
        return preview

    def _show_errors(self, draft_result: DraftResult) -> None:
        error_by_name = dict(draft_result.errors)
        for row in self.query(TextRow):
            row.show_error(error_by_name.get(row.key))
        for row_number, expect_row in enumerate(self._list_expect_rows()):
            expect_row.show_error(error_by_name.get(f"{form_texts.EXPECT}{row_number}"))
        for row_number, reference_row in enumerate(self._list_reference_rows()):
            reference_row.show_error(error_by_name.get(f"{form_texts.REFERENCE}{row_number}"))

    def _show_problems(self, problems: Iterable[str]) -> None:
        self._show_message(
            "\n".join(f"{PROBLEM_SIGN} {problem}" for problem in problems), wrong=True
        )

    def _show_message(self, message: str, wrong: bool = False) -> None:
        static = self.query_one("#message", Static)
        static.set_class(wrong, "wrong")
        static.update(message)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Write the case, or leave."""
        if event.button.id == "write":
            self.action_write()
        else:
            self.action_leave()

    def action_write(self) -> None:
        """Return the changed text, if the case is valid."""
        self._submit()

    @work(exclusive=True, group="write")
    async def _submit(self) -> None:
        preview = await self._show_preview()
        if preview is not None and preview.edited is not None and not preview.problems:
            self.dismiss(preview.edited)
        elif wrong := self.query("FormRow.wrong"):
            wrong.first().query("Input, TextArea").first().focus()

    @work(exclusive=True, group="leave")
    async def action_leave(self) -> None:
        """Leave without a change, after a question if a text has changed."""
        question = Confirm("Discard what was typed in the form?", "Discard", "Keep editing")
        if self.texts == self._initial_texts or await self.app.push_screen_wait(question):
            self.dismiss(None)

    @work(exclusive=True, group="choose")
    async def action_choose(self) -> None:
        """List the choices of the focused field, and enter the chosen one."""
        row = self._find_row(self.focused)
        box = self.focused
        if row is None or not isinstance(box, Input):
            return
        choices = row.choices(box)
        if not choices:
            self.app.notify("this field has no list: type its value", timeout=4)
            return
        chooser = Chooser(row.title, [Choice(name, "") for name in choices])
        chosen = await self.app.push_screen_wait(chooser)
        if chosen is not None:
            box.value = chosen
            box.cursor_position = len(chosen)

    def _find_row(self, widget: Widget | None) -> FormRow | None:
        nodes = widget.ancestors if widget is not None else ()
        return next((node for node in nodes if isinstance(node, FormRow)), None)
