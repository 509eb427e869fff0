"""A form in front of a page: fields, a search, and hints on the focused field."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Static, TextArea

from spbench.tui.chooser import Choice, Chooser
from spbench.tui.dialogs import Answer, Confirm, Modal
from spbench.tui.form.field_row import FieldRow, FormRow
from spbench.tui.form.row_list import RowList
from spbench.tui.form.search_bar import SearchBar
from spbench.tui.form.texts import FormTexts
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench_core.number_text import format_quantity

PREVIEW_DELAY = 0.12
"""Time without a key until the preview is updated, in seconds."""
_SWEEP = "Sweep: 64, 128 or 1..9 +2 or 8..64 *2"
_SEARCH_HINT = "search: words that a field's name or help contains. Enter goes to the first field."
_BUTTON_HINT = "Enter presses the button, ↑ and ↓ go back to the fields."
_KEYS = "• set here   Ctrl+F search, F3 set fields, F2 choices, F1 help"
_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (140, "-wide")]
"""With 140 columns the preview is next to the fields."""


class FieldForm(Modal[Answer | None]):
    """A form that returns an answer, or None if it is left.

    A subclass yields its rows in `build_rows` and the outcome of their texts in `compose_outcome`,
    and updates the outcome in `show_outcome`.

    Args:
        title: The title of the form.
        submit_label: The label of the button, such as ``Insert``.
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
            "show_set",
            "Set fields",
            id="form.changed",
            tooltip="Show only the fields that are set here, or all",
        ),
        # The rows bind these keys too, so only the buttons and the search get here.
        Binding("up,down", "return_to_field", "Fields", show=False, id="form.return"),
        Binding("escape", "leave", "Cancel", id="form.leave", tooltip="Leave without a change"),
    ]
    SCOPED_CSS = False
    """The scope would be the subclass, which no selector names."""
    CSS = """
    FieldForm { background: $surface; }
    FieldForm > #form {
        width: 100%; max-width: 100%; height: 100%; max-height: 100%; padding: 0 1;
    }
    FieldForm #sides { height: 1fr; margin: 0; }
    FieldForm.-narrow #sides { layout: vertical; }
    FieldForm #fields { width: 1fr; height: 1fr; scrollbar-size: 0 1; }
    FieldForm #outcome { width: 28%; min-width: 48; height: 1fr; }
    FieldForm.-wide #outcome { border-left: solid $foreground 30%; padding-left: 1; }
    FieldForm.-narrow #fields, FieldForm.-narrow #outcome { width: 1fr; min-width: 0; }
    FieldForm.-narrow #outcome { height: auto; max-height: 40%; border-top: solid $foreground 30%; }
    FieldForm .heading { color: $text-accent; text-style: bold; margin-top: 1; }
    FieldForm .heading.first { margin-top: 0; }
    FieldForm #hint { height: auto; min-height: 2; max-height: 5; color: $text-muted; }
    FieldForm.-narrow #hint { min-height: 0; }
    FieldForm.-narrow #preview { height: auto; max-height: 18vh; }
    FieldForm.-narrow #outcome.wrong #preview { max-height: 2; }
    FieldForm #message { height: auto; max-height: 6; text-style: bold; }
    FieldForm #message.wrong { color: $text-error; }
    FieldForm #message.warned { color: $text-warning; }
    FieldForm #search { height: 1; margin: 0; }
    FieldForm #buttons { height: 1; margin-top: 0; }
    FieldForm #buttons .wrong { color: $text-muted; background: $panel; }
    FieldForm #syntax { width: 1fr; color: $text-muted; }
    FieldForm FormRow TextArea { border: none; background: $panel; }
    FieldForm FormRow TextArea:focus { border: none; background: $primary 25%; }
    """

    def __init__(self, title: str, submit_label: str) -> None:
        super().__init__()
        self._title = title
        self._submit_label = submit_label
        self._preview_timer: Timer | None = None
        self._last_row: FormRow | None = None
        self._problems: Sequence[str] = ()
        self._initial_texts = FormTexts({})

    @abstractmethod
    def build_rows(self) -> RowList:
        """Return the list of the fields, with the id ``fields``."""

    @abstractmethod
    def compose_outcome(self) -> ComposeResult:
        """Yield the widgets next to the fields, above the message."""

    @abstractmethod
    async def show_outcome(self) -> Answer | None:
        """Show the outcome of the texts and return the answer; None if a text is invalid."""

    async def ask_to_accept(self) -> Answer | None:
        """Ask whether to return an answer that has errors; None: there is none to return."""
        return None

    def compose(self) -> ComposeResult:
        with Vertical(id="form") as frame:
            frame.border_title = Content(self._title)
            frame.border_subtitle = Content(_KEYS)
            yield SearchBar(id="search")
            with Horizontal(id="sides"):
                yield self.build_rows()
                with Vertical(id="outcome"):
                    yield from self.compose_outcome()
                    yield Static("", id="message", markup=False)
            yield Static("", id="hint", markup=False)
            with Horizontal(id="buttons"):
                yield Static("", id="syntax", markup=False)
                yield Button("Cancel (Esc)", id="leave", compact=True)
                yield Button(f"{self._submit_label} (Ctrl+S)", "primary", id="write", compact=True)

    def set_focus(
        self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False
    ) -> None:
        """Focus a widget; the list scrolls to its rows itself.

        Textual computes the distance before the hint and the preview have their heights.
        """
        super().set_focus(widget, scroll_visible=False, from_app_focus=from_app_focus)

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
            self.row_list.handle_change(row)
            self._schedule_preview()

    @property
    def row_list(self) -> RowList:
        """The list of the fields."""
        return self.query_one(RowList)

    @property
    def texts(self) -> FormTexts:
        """The current texts of all fields."""
        return self.row_list.texts

    def on_input_submitted(self) -> None:
        """Go to the next field."""
        self.focus_next()

    def on_search_bar_filter_changed(self, event: SearchBar.FilterChanged) -> None:
        """Show the fields that are found."""
        count = self.row_list.filter_rows(event.row_filter)
        self.query_one(SearchBar).show_count(count, len(self.row_list.rows))

    def action_search(self) -> None:
        """Ask for the words of a search."""
        self.query_one(SearchBar).open()

    def action_show_set(self) -> None:
        """Show only the fields that have a value set, or all."""
        self.query_one(SearchBar).toggle_set_only()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Show the hint of the focused field."""
        row = self._find_row(event.widget)
        if row is not None:
            self._last_row = row
        is_search = event.widget.parent is self.query_one(SearchBar)
        other_hint = _SEARCH_HINT if is_search else _BUTTON_HINT
        self.query_one("#hint", Static).update(row.hint if row is not None else other_hint)
        sweep = _describe_sweep(row) if isinstance(row, FieldRow) else ""
        self.query_one("#syntax", Static).update(sweep)

    def _schedule_preview(self) -> None:
        if self._preview_timer is not None:
            self._preview_timer.stop()
        self._preview_timer = self.set_timer(PREVIEW_DELAY, self._update_preview)

    @work(exclusive=True, group="preview")
    async def _update_preview(self) -> None:
        await self.show_outcome()

    def show_problems(self, problems: Iterable[str]) -> None:
        """Show the errors in the texts."""
        self._problems = tuple(problems)
        lines = "\n".join(f"{PROBLEM_SIGN} {problem}" for problem in self._problems)
        self.show_message(lines, wrong=True)

    def show_message(self, message: str, *, wrong: bool = False, warned: bool = False) -> None:
        """Show a message below the outcome, in the colour of an error or a warning."""
        static = self.query_one("#message", Static)
        self.query("#message, #outcome, #write").set_class(wrong, "wrong")
        static.set_class(warned, "warned")
        static.update(message)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Write the changes, or leave."""
        if not self.is_active:
            return  # the first click of two has opened a question
        if event.button.id == "write":
            self.action_write()
        else:
            self.action_leave()

    def action_write(self) -> None:
        """Return the answer, if the fields are valid."""
        self._submit()

    @work(exclusive=True, group="write")
    async def _submit(self) -> None:
        # A preview of the same texts would replace the message.
        if self._preview_timer is not None:
            self._preview_timer.stop()
        self.workers.cancel_group(self, "preview")
        answer = await self.show_outcome()
        if answer is None:
            answer = await self.ask_to_accept()
        if answer is not None:
            self.dismiss(answer)
            return
        wrong_rows = [row for row in self.row_list.rows if row.has_class("wrong")]
        self._report_rejection(wrong_rows)
        search_bar = self.query_one(SearchBar)
        if search_bar.is_open:  # it may hide the field
            search_bar.close()
            self._return_to_last_field()
        if wrong_rows:
            self.call_after_refresh(wrong_rows[0].query("Input, TextArea").first().focus)

    def _report_rejection(self, wrong_rows: Sequence[FormRow]) -> None:
        """Show which fields are wrong; a notification would cover the buttons."""
        problems = list(self._problems)
        if wrong_rows:
            verb = "is" if len(wrong_rows) == 1 else "are"
            names = ", ".join(filter(None, (row.name_text for row in wrong_rows)))
            problems.insert(0, f"{format_quantity(len(wrong_rows), 'field')} {verb} wrong: {names}")
        elif problems:
            problems[0] = f"{self._submit_label} is not possible: {problems[0]}"
        self.show_problems(problems)

    @work(exclusive=True, group="leave")
    async def action_leave(self) -> None:
        """Show all fields again, or leave, after a question if a text has changed."""
        search_bar = self.query_one(SearchBar)
        if search_bar.is_open:
            search_bar.close()
            self._return_to_last_field()
            return
        question = Confirm("Discard your changes in the form?", "Discard", "Keep editing")
        if self.texts == self._initial_texts or await self.app.push_screen_wait(question):
            self.dismiss(None)

    def action_return_to_field(self) -> None:
        """Focus the last focused field, or the first one that a search shows."""
        row = self._last_row
        if row is None or not row.display:
            self._last_row = next((row for row in self.row_list.rows if row.display), row)
        self._return_to_last_field()

    def _return_to_last_field(self) -> None:
        row = self._last_row if self._last_row is not None else next(iter(self.row_list.rows))
        self.set_focus(row.query("Input, TextArea").first())

    @work(exclusive=True, group="choose")
    async def action_choose(self) -> None:
        """List the choices of the focused field, and enter the chosen one."""
        row = self._find_row(self.focused)
        box = self.focused
        if row is None or not isinstance(box, Input):
            return
        choices = row.choices(box)
        if not choices:
            hint = f"This field has no choices: type its value. {row.hint}"
            self.query_one("#hint", Static).update(hint)
            return
        value = box.value.strip() or row.empty_value
        remark = "the present one" if box.value.strip() else "the present one, as the default"
        present = [Choice(name, remark) for name in choices if name == value]
        others = [Choice(name, "") for name in choices if name != value]
        chosen = await self.app.push_screen_wait(Chooser(row.title, [*present, *others]))
        if chosen is not None:
            box.value = chosen
            box.cursor_position = len(chosen)

    def _find_row(self, widget: Widget | None) -> FormRow | None:
        nodes = widget.ancestors if widget is not None else ()
        return next((node for node in nodes if isinstance(node, FormRow)), None)


def _describe_sweep(row: FieldRow) -> str:
    """Return how to enter several values of a field; empty if it takes one."""
    if not row.field.can_sweep:
        return ""
    return f"Sweep: {', '.join(row.field.choices[:2])}" if row.field.choices else _SWEEP
