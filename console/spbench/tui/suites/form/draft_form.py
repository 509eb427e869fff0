"""A form that writes a part of a suite: fields, and a preview of the YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Static, TextArea

from spbench.suites.edit.compose import EditedText
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import Confirm, Modal
from spbench.tui.form.field_row import FieldRow, FormRow
from spbench.tui.form.row_list import RowList
from spbench.tui.form.search_bar import SearchBar
from spbench.tui.form.texts import FormTexts
from spbench.tui.suites.case_rows import EXCESS_SIGN
from spbench.tui.suites.editor import SuiteEditor
from spbench.tui.suites.form.preview import Preview
from spbench.tui.widgets.glyphs import PROBLEM_SIGN

PREVIEW_DELAY = 0.12
"""Time without a key until the preview is updated, in seconds."""
_SWEEP = "Sweep: 64, 128 or 1..9 +2 or 8..64 *2"
_SEARCH_HINT = "search: words that a field's name or help contains. Enter goes to the first field."
_KEYS = "Ctrl+F search, F3 changed fields, F2 choices, F1 help"
_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (140, "-wide")]
"""With 140 columns the preview is next to the fields."""


@dataclass(frozen=True, slots=True)
class FormReading:
    """The result of reading the texts of a form.

    Attributes:
        errors: Error messages by the name of the text.
        build_preview: Builds the preview in a thread; None if there are errors.
    """

    errors: Mapping[str, str]
    build_preview: Callable[[], Preview] | None


class DraftForm(Modal[EditedText | None]):
    """A form that returns the changed text of a suite, or None if it is left.

    A subclass yields its rows in `build_rows`, and reads their texts in `read_texts`.

    Args:
        title: The title of the form.
        submit_label: The label of the button: ``Insert`` or ``Change``.
    """

    HORIZONTAL_BREAKPOINTS = _SIZES
    AUTO_FOCUS = "RowList Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s", "write", "Write", id="form.write", tooltip="Write the changes", priority=True
        ),
        Binding("f2", "choose", "List", id="form.choose", tooltip="List the choices of the field"),
        Binding(
            "ctrl+f",
            "search",
            "Search",
            id="form.search",
            tooltip="Search the fields by name and help",
            priority=True,  # a text field would delete a word
        ),
        Binding("slash", "search", "Search", show=False, id="form.slash"),
        Binding(
            "f3",
            "show_changed",
            "Changed",
            id="form.changed",
            tooltip="Show only fields that differ from their default, or all",
        ),
        Binding("escape", "leave", "Cancel", id="form.leave", tooltip="Leave without a change"),
    ]
    SCOPED_CSS = False
    """The scope would be the subclass, which no selector names."""
    CSS = """
    DraftForm { background: $surface; }
    DraftForm > #form {
        width: 100%; max-width: 100%; height: 100%; max-height: 100%; padding: 0 1;
    }
    DraftForm #sides { height: 1fr; margin: 0; }
    DraftForm.-narrow #sides { layout: vertical; }
    DraftForm #fields { width: 1fr; height: 1fr; scrollbar-size: 0 1; }
    DraftForm #outcome { width: 48; height: 1fr; }
    DraftForm.-wide #outcome { border-left: solid $foreground 30%; padding-left: 1; }
    DraftForm.-narrow #fields, DraftForm.-narrow #outcome { width: 1fr; }
    DraftForm.-narrow #outcome { height: auto; max-height: 40%; border-top: solid $foreground 30%; }
    DraftForm .heading { color: $text-accent; text-style: bold; margin-top: 1; }
    DraftForm .heading.first { margin-top: 0; }
    DraftForm #hint { height: 2; color: $text-muted; }
    DraftForm.-narrow #hint { height: auto; max-height: 5; }
    DraftForm.-narrow #preview { height: auto; max-height: 18vh; }
    DraftForm #message { height: auto; max-height: 6; text-style: bold; }
    DraftForm #message.wrong { color: $text-error; }
    DraftForm #message.warned { color: $text-warning; }
    DraftForm #search { height: 1; margin: 0; }
    DraftForm #buttons { height: 1; margin-top: 0; }
    DraftForm #syntax { width: 1fr; color: $text-muted; }
    DraftForm FormRow TextArea { border: none; background: $panel; }
    DraftForm FormRow TextArea:focus { border: none; background: $primary 25%; }
    """

    def __init__(self, title: str, submit_label: str) -> None:
        super().__init__()
        self._title = title
        self._submit_label = submit_label
        self._preview_timer: Timer | None = None
        self._last_row: FormRow | None = None
        self._initial_texts = FormTexts({})

    def build_rows(self) -> RowList:
        """Return the list of the fields, with the id ``fields``."""
        raise NotImplementedError

    def read_texts(self, texts: FormTexts) -> FormReading:
        """Return the errors in the texts, or how to build their preview."""
        raise NotImplementedError

    def find_defaults(self, preview: Preview) -> Mapping[str, str]:
        """Return the defaults of empty fields, which follow from other fields."""
        return {}

    def compose(self) -> ComposeResult:
        with Vertical(id="form") as frame:
            frame.border_title = Content(self._title)
            frame.border_subtitle = Content(_KEYS)
            yield SearchBar(id="search")
            with Horizontal(id="sides"):
                yield self.build_rows()
                with Vertical(id="outcome"):
                    preview_editor = SuiteEditor(id="preview")
                    preview_editor.read_only = True
                    preview_editor.can_focus = False
                    yield preview_editor
                    yield Static("", id="message", markup=False)
            yield Static("", id="hint", markup=False)
            with Horizontal(id="buttons"):
                yield Static("", id="syntax", markup=False)
                yield Button("Cancel (Esc)", id="leave", compact=True)
                yield Button(f"{self._submit_label} (Ctrl+S)", "primary", id="write", compact=True)

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
        if row is not None:
            self._list.handle_change(row)
            self._schedule_preview()

    @property
    def _list(self) -> RowList:
        return self.query_one(RowList)

    @property
    def texts(self) -> FormTexts:
        """The current texts of all fields."""
        return self._list.texts

    def on_input_submitted(self) -> None:
        """Go to the next field."""
        self.focus_next()

    def on_search_bar_filter_changed(self, event: SearchBar.FilterChanged) -> None:
        """Show the fields that are found."""
        count = self._list.filter_rows(event.row_filter)
        self.query_one(SearchBar).show_count(count, len(self._list.rows))

    def action_search(self) -> None:
        """Ask for the words of a search."""
        self.query_one(SearchBar).open()

    def action_show_changed(self) -> None:
        """Show only the fields that differ from their default, or all."""
        self.query_one(SearchBar).toggle_changed_only()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the hint of the focused field."""
        row = self._find_row(event.widget)
        if row is not None:
            self._last_row = row
        is_search = event.widget.parent is self.query_one(SearchBar)
        hint = row.hint if row is not None else ""
        self.query_one("#hint", Static).update(_SEARCH_HINT if is_search else hint)
        can_sweep = isinstance(row, FieldRow) and row.field.can_sweep
        self.query_one("#syntax", Static).update(_SWEEP if can_sweep else "")

    def _schedule_preview(self) -> None:
        if self._preview_timer is not None:
            self._preview_timer.stop()
        self._preview_timer = self.set_timer(PREVIEW_DELAY, self._update_preview)

    @work(exclusive=True, group="preview")
    async def _update_preview(self) -> None:
        await self._show_preview()

    async def _show_preview(self) -> Preview | None:
        """Show the preview of the texts and return it; None if a text is invalid."""
        reading = self.read_texts(self.texts)
        self._list.show_errors(reading.errors)
        if reading.build_preview is None:
            self._show_problems(reading.errors.values())
            return None
        preview = await asyncio.to_thread(reading.build_preview)
        # In the meantime the form may have been left, which removes its widgets.
        if not (self.is_running and self.app.is_running):
            return None
        self._show_lines(preview)
        self._list.show_defaults(self.find_defaults(preview))
        if preview.problems:
            self._show_problems(preview.problems)
        else:
            self._show_preview_message(preview)
        return preview

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

    def _show_preview_message(self, preview: Preview) -> None:
        warning = f"{EXCESS_SIGN} {preview.warning}" if preview.warning else ""
        self._show_message("\n".join(filter(None, (preview.summary, warning))))
        self.query_one("#message").set_class(bool(warning), "warned")

    def _show_problems(self, problems: Iterable[str]) -> None:
        self._show_message(
            "\n".join(f"{PROBLEM_SIGN} {problem}" for problem in problems), wrong=True
        )

    def _show_message(self, message: str, wrong: bool = False) -> None:
        static = self.query_one("#message", Static)
        static.set_class(wrong, "wrong")
        static.remove_class("warned")
        static.update(message)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Write the changes, or leave."""
        if event.button.id == "write":
            self.action_write()
        else:
            self.action_leave()

    def action_write(self) -> None:
        """Return the changed text, if the fields are valid."""
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
        """Show all fields again, or leave, after a question if a text has changed."""
        search_bar = self.query_one(SearchBar)
        if search_bar.is_open:
            search_bar.close()
            self._return_to_field()
            return
        question = Confirm("Discard your changes in the form?", "Discard", "Keep editing")
        if self.texts == self._initial_texts or await self.app.push_screen_wait(question):
            self.dismiss(None)

    def _return_to_field(self) -> None:
        """Focus the last focused field, after a search."""
        row = self._last_row if self._last_row is not None else next(iter(self._list.rows))
        row.query("Input, TextArea").first().focus()

    @work(exclusive=True, group="choose")
    async def action_choose(self) -> None:
        """List the choices of the focused field, and enter the chosen one."""
        row = self._find_row(self.focused)
        box = self.focused
        if row is None or not isinstance(box, Input):
            return
        choices = row.choices(box)
        if not choices:
            self.app.notify("this field has no choices: type its value", timeout=4)
            return
        chooser = Chooser(row.title, [Choice(name, "") for name in choices])
        chosen = await self.app.push_screen_wait(chooser)
        if chosen is not None:
            box.value = chosen
            box.cursor_position = len(chosen)

    def _find_row(self, widget: Widget | None) -> FormRow | None:
        nodes = widget.ancestors if widget is not None else ()
        return next((node for node in nodes if isinstance(node, FormRow)), None)


def _count_common_lines(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of lines at the start that are equal."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((row for row, (a, b) in pairs if a != b), min(len(old), len(new)))
