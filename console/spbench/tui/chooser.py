"""A dialog with a list to choose from, narrowed by the words that the user types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from spbench.tui.dialogs import Modal

NO_MATCH = "no match"
_MAX_DIALOG_PERCENT = 90
"""Largest height of a dialog, in percent of the screen; console.tcss sets it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a list.

    Attributes:
        name: Its name.
        summary: A short summary, or the reason why it is disabled.
        enabled: Whether it can be chosen.
    """

    name: str
    summary: str
    enabled: bool = True


class Chooser(Modal[str | None]):
    """A dialog that returns the name of a choice, or None after Escape.

    Args:
        title: The question.
        choices: The choices.
        placeholder: A hint on the text to type.
        make_typed_choice: Returns a choice that the typed text names, in addition to those of the
            list; None if the text only searches them.
        text: The text that is typed already.

    Attributes:
        OTHER_ROWS: Rows of the dialog around the list: border, padding, the field and the row below
            it.
    """

    OTHER_ROWS: ClassVar[int] = 6
    HELP: ClassVar[str] = """\
Type words to find a name or what it is for. Names that start with them come first. Enter takes the
marked one."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="chooser.leave", tooltip="Choose nothing"),
        Binding("up", "move('cursor_up')", "Up", id="chooser.up", tooltip="The choice above"),
        Binding("down", "move('cursor_down')", "Down", id="chooser.down", tooltip="One below"),
        Binding("pageup", "move('page_up')", "Page up", id="chooser.page-up"),
        Binding("pagedown", "move('page_down')", "Page down", id="chooser.page-down"),
        # With priority, since the text field would move its cursor; Ctrl+A and Ctrl+E still do.
        Binding("home", "move('first')", "First", id="chooser.first", priority=True),
        Binding("end", "move('last')", "Last", id="chooser.last", priority=True),
    ]
    DEFAULT_CSS = """
    Chooser OptionList {
        height: auto; border: none; padding: 0 1 0 0; margin-top: 1;
        background: transparent;
    }
    """

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        placeholder: str = "type to find",
        make_typed_choice: Callable[[str], Choice | None] | None = None,
        text: str = "",
    ) -> None:
        super().__init__()
        self._question = title
        self._choices = choices
        self._placeholder = placeholder
        self._make_typed_choice = make_typed_choice
        self._text = text
        self._shown: Sequence[Choice] = ()

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = Content(self._question)
            frame.border_subtitle = "Enter chooses  Esc cancels"
            yield Input(self._text, placeholder=self._placeholder, select_on_focus=False, id="find")
            options = OptionList(id="found", markup=False)
            options.can_focus = False
            yield options

    def on_mount(self) -> None:
        """Show the choices that match the text."""
        self._narrow(self._text)

    def on_resize(self) -> None:
        """Use the rows that the dialog can have for the list."""
        dialog_height = self.size.height * _MAX_DIALOG_PERCENT // 100
        self.query_one(OptionList).styles.max_height = max(1, dialog_height - self.OTHER_ROWS)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the choices that match."""
        self._narrow(event.value)

    def on_input_submitted(self) -> None:
        """Return the marked choice."""
        marked = self.query_one(OptionList).highlighted
        if marked is not None and self._shown:
            self.choose(self._shown[marked])
        elif self._shown:
            self.explain_rejection(self._shown[0])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the clicked choice."""
        self.choose(self._shown[event.option_index])

    def choose(self, choice: Choice) -> None:
        """Return a choice."""
        self.dismiss(choice.name)

    def explain_rejection(self, choice: Choice) -> None:
        """Show why a disabled choice is not taken; here its row has the reason."""

    def action_move(self, list_action: str) -> None:
        """Mark another choice by an action of the list, such as ``cursor_up``."""
        getattr(self.query_one(OptionList), f"action_{list_action}")()

    def action_leave(self) -> None:
        """Leave without a choice."""
        self.dismiss(None)

    def _narrow(self, text: str) -> None:
        wanted_words = text.lower().split()
        typed_choice = self._make_typed_choice(text.strip()) if self._make_typed_choice else None
        typed_choices = [typed_choice] if typed_choice is not None else []
        matching_choices = [
            choice
            for choice in self._choices
            if all(word in f"{choice.name} {choice.summary}".lower() for word in wanted_words)
        ]
        matching_choices.sort(key=lambda choice: _rank_name(choice.name.lower(), wanted_words))
        self._shown = typed_choices + matching_choices
        names = [choice.name for choice in (*typed_choices, *self._choices)]
        width = max(map(len, names), default=0) + 2
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            Option(_render_choice(choice, width), disabled=not choice.enabled)
            for choice in self._shown
        )
        if not self._shown:
            options.add_option(Option(Content.styled(NO_MATCH, "$text-muted"), disabled=True))
        options.action_first()


def _rank_name(name: str, wanted_words: Sequence[str]) -> int:
    """Return 0 for a name that starts with the words, 1 for others with them, else 2."""
    if name.startswith(" ".join(wanted_words)):
        return 0
    return 1 if all(word in name for word in wanted_words) else 2


def _render_choice(choice: Choice, width: int) -> Table:
    """Return the row of a choice; the lines of a long summary are aligned."""
    row = Table.grid(expand=True)
    row.add_column(width=width, no_wrap=True, overflow="ellipsis")
    row.add_column(ratio=1)
    row.add_row(Text(choice.name, Style(bold=True)), Text(choice.summary, Style(bold=False)))
    return row
