"""Questions: yes or no, and one line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Static

from spbench.tui.modal import Modal

_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (60, "-wide")]
"""From how many columns on answers stand side by side."""


class Confirm(Modal[bool]):
    """Asks a question; True where it is answered with yes."""

    HELP = "A question. Y and N answer it, and so do the buttons; Escape is no."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="dialog.yes"),
        Binding("n,escape", "answer(False)", "No", id="dialog.no"),
        Binding("left,right", "app.focus_next", "Other", show=False, id="dialog.other"),
    ]
    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > Vertical {
        width: 64; max-width: 96%; height: auto; max-height: 100%; padding: 0 1;
        background: $panel; border: round $primary;
    }
    Confirm VerticalScroll { height: auto; max-height: 60vh; }
    Confirm Horizontal { height: auto; }
    Confirm.-narrow Horizontal { layout: vertical; }
    Confirm Button { min-width: 8; margin-right: 2; }
    """

    HORIZONTAL_BREAKPOINTS = _SIZES

    def __init__(self, question: str, yes: str = "Yes", no: str = "No") -> None:
        super().__init__()
        self._question = question
        self._yes = yes
        self._no = no

    def compose(self) -> ComposeResult:
        with Vertical():
            with VerticalScroll(can_focus=False):
                yield Static(self._question, markup=False)
            with Horizontal():
                yield Button(f"{self._no} (n)", id="no", compact=True)
                yield Button(f"{self._yes} (y)", id="yes", variant="warning", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer as the button says."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Answer by key."""
        self.dismiss(yes)


class AskLine(Modal[str | None]):
    """Asks for one line of text; None where it is left with Escape.

    Args:
        question: The question.
        text: The line as proposed.
        empty: Whether an empty line is an answer; else it is as Escape.
    """

    HELP = "A line to fill in. Enter takes it, Escape leaves without a change."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="dialog.leave"),
    ]
    DEFAULT_CSS = """
    AskLine { align: center middle; }
    AskLine > Vertical {
        width: 72; max-width: 96%; height: auto; max-height: 100%; padding: 0 1;
        background: $panel; border: round $primary;
    }
    AskLine Input { background: $surface; }
    """

    def __init__(self, question: str, text: str = "", *, empty: bool = False) -> None:
        super().__init__()
        self._question = question
        self._text = text
        self._empty = empty

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Input(self._text, id="line", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the line back."""
        line = event.value.strip()
        self.dismiss(line if line or self._empty else None)

    def action_leave(self) -> None:
        """Give nothing back."""
        self.dismiss(None)
