"""The form of a case: its fields from the catalog, and what they would write."""

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
from spbench.suites.edit.field import Field
from spbench.suites.expectations import list_metrics
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import Confirm, Modal
from spbench.tui.suites.editor import PROBLEM_SIGN, SuiteEditor
from spbench.tui.suites.form import form_texts
from spbench.tui.suites.form.draft_reader import DraftResult, read_draft
from spbench.tui.suites.form.field_row import (
    ExpectRow,
    FieldRow,
    FormRow,
    ReferenceRow,
    TextRow,
)
from spbench.tui.suites.form.preview import EstimateSuite, Preview, WriteDraft, build_preview
from spbench_core.catalog.benchmark import Benchmark, Metric

PREVIEW_DELAY = 0.12
"""Seconds without a key until the preview is made again."""
NO_EXPECTATION = ("", "", "")
NO_REFERENCE = ("", "", "", "", "")
_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (140, "-wide")]
"""From how many columns on the text stands beside the fields."""


class Fields(VerticalScroll, can_focus=False, inherit_bindings=False):
    """The rows; up and down go from one to the next, where a field does not need them itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next", id="form.next", tooltip="The next field"),
        Binding("up", "app.focus_previous", "Before", id="form.before", tooltip="The field before"),
    ]


class CaseForm(Modal[EditedText | None]):
    """Edits one case; gives the changed text back, or None where it is left.

    Args:
        benchmark: The case's benchmark.
        draft: What the form shows at first.
        write: Puts a draft into the text.
        path: The suite's file.
        verb: What the button says: ``Insert`` or ``Change``.
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
    CaseForm { background: $panel; }
    CaseForm > #form {
        padding: 0 1; background: $panel;
        border: round $primary; border-title-color: $primary;
    }
    CaseForm #sides { height: 1fr; }
    CaseForm.-narrow #sides { layout: vertical; }
    CaseForm #fields { width: 3fr; height: 1fr; background: $panel; scrollbar-size: 0 1; }
    CaseForm #outcome { width: 2fr; height: 1fr; }
    CaseForm.-wide #outcome { border-left: solid $surface; padding-left: 1; }
    CaseForm.-narrow #fields, CaseForm.-narrow #outcome { width: 1fr; }
    CaseForm.-narrow #fields { height: 3fr; }
    CaseForm.-narrow #outcome { height: 2fr; border-top: solid $surface; }
    CaseForm .heading { color: $text-accent; text-style: bold; margin-top: 1; }
    CaseForm .heading.first { margin-top: 0; }
    CaseForm #hint { height: 2; color: $text-muted; }
    CaseForm #words { height: auto; max-height: 6; text-style: bold; }
    CaseForm #words.wrong { color: $text-error; }
    CaseForm #buttons { height: 1; align-horizontal: right; }
    CaseForm Button { margin-left: 2; }
    CaseForm FormRow Input, CaseForm FormRow TextArea { border: none; background: $surface; }
    CaseForm FormRow Input:focus, CaseForm FormRow TextArea:focus {
        border: none; background: $primary 25%;
    }
    """

    def __init__(
        self,
        benchmark: Benchmark,
        draft: CaseDraft,
        write: WriteDraft,
        path: Path,
        verb: str,
        estimate: EstimateSuite,
    ) -> None:
        super().__init__()
        self._estimate = estimate
        self._texts = form_texts.CaseTexts(benchmark, draft)
        self._write = write
        self._path = path
        self._verb = verb
        self._metrics = [metric.name for metric in self._known_metrics()]
        self._pause: Timer | None = None
        self._first = form_texts.FormTexts({})

    def _known_metrics(self) -> tuple[Metric, ...]:
        draft = self._texts.draft
        try:
            return list_metrics(self._texts.benchmark, draft.params)
        except ExceptionGroup:  # they are not whole yet
            return list_metrics(self._texts.benchmark)

    # What it shows

    def compose(self) -> ComposeResult:
        benchmark = self._texts.benchmark
        with Vertical(id="form") as frame:
            frame.border_title = Content(f"{benchmark.name}: {benchmark.summary}")
            with Horizontal(id="sides"):
                with Fields(id="fields"):
                    yield from self._rows()
                with Vertical(id="outcome"):
                    written = SuiteEditor(id="written")
                    written.read_only = True
                    written.can_focus = False
                    yield written
                    yield Static("", id="words", markup=False)
            yield Static("", id="hint", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel (Esc)", id="leave", compact=True)
                yield Button(f"{self._verb} (Ctrl+S)", "primary", id="write", compact=True)

    def _rows(self) -> Iterable[Static | FormRow]:
        form = self._texts
        texts = self._texts.initial.texts
        yield Static("Case", classes="heading first")
        yield from self._fields([form.name_field, form.np_field, form.repeat_field])
        yield TextRow(
            form_texts.COMMENT, "stands above the case", texts[form_texts.COMMENT], lines=True
        )
        yield Static("Parameters", classes="heading")
        yield from self._fields(form.swept_fields[1:])
        yield TextRow(
            form_texts.IN_STEP, "swept names that change together", texts[form_texts.IN_STEP]
        )
        yield TextRow(
            form_texts.EXCLUDE, "points to leave out: {key: value}", texts[form_texts.EXCLUDE]
        )
        yield Static("Expectations", classes="heading")
        for expected in (*form.initial.expect, NO_EXPECTATION):
            yield self._expect_row(expected)
        yield Static("References with tolerances", classes="heading")
        for reference in (*form.initial.references, NO_REFERENCE):
            yield self._reference_row(reference)
        yield Static("Launch, where it differs from the suite's", classes="heading")
        yield from self._fields(form.launch_fields, form_texts.LAUNCH)

    def _fields(self, fields: Iterable[Field], prefix: str = "") -> Iterable[FieldRow]:
        for field in fields:
            key = prefix + field.name
            yield FieldRow(field, key, self._texts.initial.texts.get(key, ""))

    def _expect_row(self, expected: form_texts.ExpectationTexts) -> ExpectRow:
        return ExpectRow(self._figures(), expected)

    def _reference_row(self, reference: form_texts.ReferenceTexts) -> ReferenceRow:
        return ReferenceRow(self._figures(), reference)

    def _figures(self) -> list[str]:
        """Return the metrics, then each with its statistics."""
        return [*self._metrics, *(f"{m}.{s}" for m in self._metrics for s in STATISTICS)]

    # What is typed

    @property
    def texts(self) -> form_texts.FormTexts:
        """All texts as they are now."""
        fields = self.query_one("#fields")
        texts = {row.key: row.text for row in fields.query(TextRow)}
        return form_texts.FormTexts(
            texts,
            [row.texts for row in self._expected()],
            [row.texts for row in self._references()],
        )

    def _expected(self) -> list[ExpectRow]:
        return [row for row in self.query(ExpectRow) if any(row.texts)]

    def _references(self) -> list[ReferenceRow]:
        return [row for row in self.query(ReferenceRow) if any(row.texts)]

    def on_mount(self) -> None:
        """Show what the draft would write."""
        self._first = self.texts
        self._look()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Check what is typed, and make the preview again."""
        self._changed(event.input)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Check what is typed, and make the preview again."""
        self._changed(event.text_area)

    def _changed(self, box: Input | TextArea) -> None:
        row = self._row_of(box)
        if row is not None:
            row.check()
        if isinstance(row, ExpectRow) and row is self.query(ExpectRow).last() and any(row.texts):
            self.query_one("#fields").mount(self._expect_row(NO_EXPECTATION), after=row)
        if isinstance(row, ReferenceRow) and self._is_last_and_filled(row):
            self.query_one("#fields").mount(self._reference_row(NO_REFERENCE), after=row)
        if row is not None:
            self._look_soon()

    def _is_last_and_filled(self, row: ReferenceRow) -> bool:
        return row is self.query(ReferenceRow).last() and any(row.texts)

    def on_input_submitted(self) -> None:
        """Go to the next field."""
        self.focus_next()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Say at length what the field is for."""
        row = self._row_of(event.widget)
        self.query_one("#hint", Static).update(row.hint if row else "")

    # What it comes to

    def _look_soon(self) -> None:
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(PREVIEW_DELAY, self._look)

    @work(exclusive=True, group="preview")
    async def _look(self) -> None:
        await self._outcome()

    async def _outcome(self) -> Preview | None:
        """Show what the texts come to, and return it; None where it cannot be said."""
        read = read_draft(self._texts, self.texts)
        self._complain(read)
        if read.draft is None:
            self._say_problems(read.errors.values())
            return None
        made = await asyncio.to_thread(
            build_preview, read.draft, self._write, self._path, self._estimate
        )
        # The form may have been left or the console have ended meanwhile: its parts go before it.
        if not (self.is_running and self.app.is_running):
            return None
        written = self.query_one("#written", SuiteEditor)
        if written.text != made.lines:
            written.line_number_start = made.first_line
            written.load_text(made.lines)
        if made.problems:
            self._say_problems(made.problems)
        else:
            self._say(made.summary)
        return made

    def _complain(self, read: DraftResult) -> None:
        told = dict(read.errors)
        for row in self.query(TextRow):
            row.show_error(told.get(row.key))
        for number, expected in enumerate(self._expected()):
            expected.show_error(told.get(f"{form_texts.EXPECT}{number}"))
        for number, reference in enumerate(self._references()):
            reference.show_error(told.get(f"{form_texts.REFERENCE}{number}"))

    def _say_problems(self, problems: Iterable[str]) -> None:
        self._say("\n".join(f"{PROBLEM_SIGN} {problem}" for problem in problems), wrong=True)

    def _say(self, words: str, wrong: bool = False) -> None:
        said = self.query_one("#words", Static)
        said.set_class(wrong, "wrong")
        said.update(words)

    # Actions

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do what the button says."""
        if event.button.id == "write":
            self.action_write()
        else:
            self.action_leave()

    def action_write(self) -> None:
        """Give the changed text back, if the case is right."""
        self._give_back()

    @work(exclusive=True, group="write")
    async def _give_back(self) -> None:
        made = await self._outcome()
        if made is not None and made.edited is not None and not made.problems:
            self.dismiss(made.edited)
        elif wrong := self.query("FormRow.wrong"):
            wrong.first().query("Input, TextArea").first().focus()

    @work(exclusive=True, group="leave")
    async def action_leave(self) -> None:
        """Leave the text as it is, after a question where something was typed."""
        question = Confirm("Discard what was typed in the form?", "Discard", "Keep editing")
        if self.texts == self._first or await self.app.push_screen_wait(question):
            self.dismiss(None)

    @work(exclusive=True, group="choose")
    async def action_choose(self) -> None:
        """List what the focused field can be, and write what is chosen."""
        row = self._row_of(self.focused)
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

    def _row_of(self, widget: Widget | None) -> FormRow | None:
        nodes = widget.ancestors if widget is not None else ()
        return next((node for node in nodes if isinstance(node, FormRow)), None)
