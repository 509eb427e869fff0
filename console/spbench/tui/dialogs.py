"""Dialogs: the base class, a question with two answers, and one line of text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static
from textual.widgets.input import Selection

from spbench.errors import SpbenchError

Answer = TypeVar("Answer")

_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (60, "-wide")]
"""With 60 columns the answers are next to each other."""


class Overlay(ModalScreen[Answer]):
    """A screen in front of a page."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close the screen with a result, and those in front of it without one; only once.

        Textual would close the frontmost screen, and this one again if its key or button comes
        twice.
        """
        if self not in self.app.screen_stack:
            return AwaitComplete()
        while (front := self.app.screen) is not self:
            front.dismiss(None)
        return super().dismiss(result)


class Modal(Overlay[Answer]):
    """A screen in front of a page that disables the keys of page and app, except help.

    Attributes:
        HELP: The text that F1 shows if the focused widget has no help.
    """

    HELP: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "app.help", "Help", show=False, id="modal.help", tooltip="Help, and keys"),
    ]


class Confirm(Modal[bool]):
    """A question that returns True for the first answer.

    Args:
        question: The question.
        yes: The first answer.
        no: The last answer.
        enter_is_yes: Whether Enter takes the first answer, which loses nothing.
    """

    HELP = """\
A question. Y and N answer it, and so do the buttons: Enter takes the marked one. Escape is no."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="dialog.yes"),
        Binding("n,escape", "answer(False)", "No", id="dialog.no"),
        Binding("left,right", "app.focus_next", "Other", show=False, id="dialog.other"),
    ]

    HORIZONTAL_BREAKPOINTS = _SIZES

    def __init__(
        self, question: str, yes: str = "Yes", no: str = "No", *, enter_is_yes: bool = False
    ) -> None:
        super().__init__()
        self._enter_is_yes = enter_is_yes
        self._question = question
        self._yes = yes
        self._no = no

    def compose(self) -> ComposeResult:
        with Vertical():
            with VerticalScroll(can_focus=False):
                yield Static(self._question, markup=False, id="question")
            yield Horizontal(*self.make_buttons())

    def make_buttons(self) -> list[Button]:
        """Return the buttons of the answers."""
        return [
            Button(f"{self._yes} (y)", id="yes", variant="warning", compact=True),
            Button(f"{self._no} (n)", id="no", compact=True),
        ]

    def show_question(self, question: str) -> None:
        """Show a question; cheap if it is the same."""
        if question != self._question:
            self._question = question
            self.query_one("#question", Static).update(question)

    def find_enter_button(self) -> Button:
        """Return the button of the answer of Enter."""
        return self.query_one("#yes" if self._enter_is_yes else "#no", Button)

    def on_mount(self) -> None:
        """Focus the answer of Enter."""
        if self.query(Button):  # otherwise it was closed before it had any
            self.find_enter_button().focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer by button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Answer by key."""
        self.dismiss(yes)


class ThirdAnswerDialog(Confirm):
    """A question with a third answer.

    A subclass has the key of the answer, with the action ``third``.

    Args:
        question: The question.
        yes: The first answer.
        no: The second answer.
        third: The third answer, with its key.
        enter_is_yes: Whether Enter takes the first answer, which loses nothing.
        enter_is_third: Whether Enter takes the third answer, which loses nothing.

    Attributes:
        chose_third: Whether the third answer was given, for which the dialog returns False.
    """

    def __init__(
        self,
        question: str,
        yes: str,
        no: str,
        third: str,
        *,
        enter_is_yes: bool = False,
        enter_is_third: bool = False,
    ) -> None:
        super().__init__(question, yes, no, enter_is_yes=enter_is_yes)
        self._third = third
        self._enter_is_third = enter_is_third
        self.chose_third = False

    def find_enter_button(self) -> Button:
        """Return the button of the answer of Enter."""
        third = self.query_one("#third", Button)
        return third if self._enter_is_third else super().find_enter_button()

    def make_buttons(self) -> list[Button]:
        """Return the buttons of the answers, the one of Enter or else the third one first."""
        yes, no = super().make_buttons()
        third = Button(self._third, id="third", compact=True)
        return [yes, third, no] if self._enter_is_yes else [third, yes, no]

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer by button."""
        if event.button.id == "third":
            event.prevent_default()
            self.action_third()

    def action_third(self) -> None:
        """Give the third answer."""
        self.chose_third = True
        self.dismiss(False)


class FewLaunchesDialog(ThirdAnswerDialog):
    """A question before a run with too few launches becomes a baseline.

    Args:
        question: The question.
        launches: The launches that a comparison needs.
    """

    HELP = """\
Runs cannot be judged against a baseline with too few launches. R and Enter run it again with
enough, Y makes a baseline of it anyway, and N or Escape does not."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "third", "Run it first", id="dialog.run-first"),
    ]

    def __init__(self, question: str, launches: int) -> None:
        third = f"Run {launches} launches (r)"
        super().__init__(question, "Make anyway", "Cancel", third, enter_is_third=True)


class LaunchesAgainDialog(ThirdAnswerDialog):
    """A question before runs with too few launches are started again.

    Args:
        question: The question.
        launches: The launches that a comparison needs.
    """

    HELP = """\
The run has fewer launches of each case than a comparison needs. Y and Enter run it again with
enough, A runs it as it was, and N or Escape does not run it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "third", "As it was", id="dialog.as-it-was"),
    ]

    def __init__(self, question: str, launches: int) -> None:
        yes = f"With {launches} launches"
        super().__init__(question, yes, "Cancel", "As it was (a)", enter_is_yes=True)


class LeaveDialog(ThirdAnswerDialog):
    """A question before the console quits with unsaved text."""

    HELP = "Text is not saved. S saves it and quits, Y quits without it, N and Escape stay."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "third", "Save and quit", id="dialog.save"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__(question, "Quit", "Stay", "Save and quit (s)")


class FaultsAgainDialog(ThirdAnswerDialog):
    """A question before a run is started again that has planted faults."""

    HELP = """\
The run has planted faults. Y plants them again, W runs the same without faults, as after a repair,
and N or Escape does not run it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "third", "Without faults", id="dialog.without-faults"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__(question, "With faults", "Cancel", "Without faults (w)", enter_is_yes=True)


class OnlyFailedDialog(ThirdAnswerDialog):
    """A question before the failed and cancelled cases of a run are run again."""

    HELP = """\
Cases of the run failed, and others were cancelled. Y runs all of them, O runs only the failed ones,
and N or Escape runs none."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "third", "Only failed", id="dialog.only-failed"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__(question, "All", "Cancel", "Only failed (o)", enter_is_yes=True)


class AskLine(Modal[Answer | None]):
    """A dialog for one line of text that returns its value, or None after Escape.

    Args:
        question: The question.
        parse: Returns the value of a line, and raises a `SpbenchError` if it is invalid; the dialog
            shows the error and stays open. It is called in a thread.
        text: The proposed line.
        required: The kind of answer, such as "a name", which the dialog asks for if the line is
            empty. None if an empty line is an answer.
        prefix: The start of the proposed line that typing does not replace.
    """

    HELP = """\
A line to fill in. Enter takes it, Escape leaves without a change. If the line is invalid, the
reason is shown below it, and the dialog stays open."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="dialog.leave"),
    ]

    DEFAULT_CSS = """
    AskLine #problem { display: none; color: $text-error; }
    AskLine #problem.visible { display: block; }
    """

    def __init__(
        self,
        question: str,
        parse: Callable[[str], Answer],
        text: str = "",
        *,
        required: str | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__()
        self._question = question
        self._parse = parse
        self._text = text
        self._required = required
        self._prefix = prefix

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_subtitle = "Enter accepts  Esc cancels"
            yield Static(self._question, markup=False)
            yield Input(self._text, select_on_focus=not self._prefix, id="line", compact=True)
            yield Static("", id="problem", markup=False)

    def on_mount(self) -> None:
        """Select the part of the proposed line that typing replaces."""
        if self._prefix:
            selection = Selection(len(self._prefix), len(self._text))
            self.query_one(Input).selection = selection

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the value of the line, or show why it is invalid."""
        line = event.value.strip()
        if not line and self._required is not None:
            self._show_problem(f"✗ type {self._required}, or leave with Escape")
            return
        try:
            answer = await asyncio.to_thread(self._parse, line)
        except SpbenchError as error:
            self._show_problem(f"✗ {error}")
        else:
            self.dismiss(answer)

    def on_input_changed(self) -> None:
        """Hide the error of the line before."""
        self._show_problem("")

    def _show_problem(self, text: str) -> None:
        problem = self.query_one("#problem", Static)
        problem.update(text)
        problem.set_class(bool(text), "visible")

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)
