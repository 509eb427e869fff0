"""A question with a list to choose from; what is typed narrows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from spbench.tui.modal import Modal


@dataclass(frozen=True, slots=True)
class Choice:
    """An item of a list: its name, and a summary in a few words."""

    name: str
    summary: str


class Chooser(Modal[str | None]):
    """Asks for one of many; None where it is left with Escape."""

    HELP: ClassVar[str] = "Type words to find a name or what it is for. Enter takes the marked one."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="chooser.leave", tooltip="Choose nothing"),
        Binding("up", "move('cursor_up')", "Up", id="chooser.up", tooltip="The choice above"),
        Binding("down", "move('cursor_down')", "Down", id="chooser.down", tooltip="One below"),
        Binding("pageup", "move('page_up')", "Page up", id="chooser.page-up"),
        Binding("pagedown", "move('page_down')", "Page down", id="chooser.page-down"),
    ]
    DEFAULT_CSS = """
    Chooser { align: center middle; }
    Chooser > Vertical {
        width: 92; max-width: 94%; height: auto; max-height: 90%; padding: 0 1;
        background: $panel; border: round $primary; border-title-color: $primary;
    }
    Chooser OptionList {
        height: auto; max-height: 60vh; border: none; padding: 0; background: $panel;
    }
    Chooser .note { padding: 0 1; }
    """

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._question = title
        self._choices = choices
        self._shown: Sequence[Choice] = ()

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = Content(self._question)
            yield Input(placeholder="type to find", id="find")
            found = OptionList(id="found", markup=False)
            found.can_focus = False
            yield found
            yield Static("enter chooses, escape cancels", classes="note")

    def on_mount(self) -> None:
        """Show all."""
        self._narrow("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what matches."""
        self._narrow(event.value)

    def on_input_submitted(self) -> None:
        """Take the marked choice."""
        marked = self.query_one(OptionList).highlighted
        if marked is not None:
            self.dismiss(self._shown[marked].name)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take a choice that was clicked on."""
        self.dismiss(self._shown[event.option_index].name)

    def action_move(self, way: str) -> None:
        """Mark another choice."""
        getattr(self.query_one(OptionList), f"action_{way}")()

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)

    def _narrow(self, text: str) -> None:
        words = text.lower().split()
        self._shown = [
            choice
            for choice in self._choices
            if all(word in f"{choice.name} {choice.summary}".lower() for word in words)
        ]
        width = max((len(choice.name) for choice in self._choices), default=0) + 2
        found = self.query_one(OptionList)
        found.clear_options()
        found.add_options(Option(_line(choice, width)) for choice in self._shown)
        found.highlighted = 0 if self._shown else None


def _line(choice: Choice, width: int) -> Text:
    return Text(f"{choice.name:<{width}}", Style(bold=True)).append(
        choice.summary, Style(bold=False)
    )
