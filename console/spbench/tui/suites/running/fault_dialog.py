"""The dialog that asks for a fault to plant in a case, and for its rank."""

from __future__ import annotations

from typing import ClassVar

from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from spbench.suites.case import Case
from spbench.suites.inject import (
    describe_fault_and_finder,
    explain_undetectable,
    list_effective_faults,
)
from spbench.tui.chooser import Choice, Chooser
from spbench_core.catalog.planted_fault import parse_fault

_PLACEHOLDER = "type to find, or a factor: slow=3 takes 3 times as long"


class FaultDialog(Chooser):
    """A list of faults with a field for the rank; returns ``FAULT[,rank=RANK]``.

    Args:
        case: The case.
        np: The number of ranks of its launch; None if it is unknown.
    """

    HELP: ClassVar[str] = """\
Type words to find a fault or what it does. Enter plants the marked fault, and the run must find it.
slow takes a factor: slow=3 takes 3 times as long. Tab goes to the rank of the fault; without a
number it is the last one."""
    OTHER_ROWS: ClassVar[int] = 8
    DEFAULT_CSS = """
    FaultDialog #ranks Static { width: auto; color: $text-muted; }
    FaultDialog #rank { width: 20; margin: 0 1; }
    """

    def __init__(self, case: Case, np: int | None) -> None:
        self._case = case
        self._np = np
        self._rank_text = ""
        super().__init__(
            f"Enter plants the fault and runs {case.id}", (), _PLACEHOLDER, self._find_typed_choice
        )
        self._update_choices()

    def on_mount(self) -> None:
        """Show the faults, and the field for the rank below them."""
        last = "the last rank" if self._np is None else f"rank {self._np - 1}, the last"
        row = Horizontal(
            Static("rank"),
            Input(placeholder=last, select_on_focus=False, id="rank", compact=True),
            Static(self._describe_ranks(), id="rank-hint", markup=False),
            id="ranks",
        )
        self.query_one(Vertical).mount(row)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the faults that match, with the effects that they have in the rank."""
        if event.input.id == "rank":
            event.prevent_default()
            self._rank_text = event.value.strip()
            self._update_choices()
            self._narrow(self.query_one("#find", Input).value)

    def choose(self, choice: Choice) -> None:
        """Return the fault with its rank."""
        self.dismiss(self._add_rank(choice.name))

    def _describe_ranks(self) -> str:
        """Return the ranks that can be typed, and the key for that."""
        if self._np is None:
            return "a number; Tab goes here"
        return "its only rank" if self._np == 1 else f"0 to {self._np - 1}; Tab goes here"

    def _add_rank(self, fault: str) -> str:
        """Return a fault with the typed rank, unless its text has one."""
        return fault if not self._rank_text or "," in fault else f"{fault},rank={self._rank_text}"

    def _update_choices(self) -> None:
        self._choices = [self._make_choice(name) for name in list_effective_faults(self._case)]

    def _find_typed_choice(self, text: str) -> Choice | None:
        """Return the choice of a typed fault with a factor or a rank; None without one."""
        return self._make_choice(text) if "=" in text else None

    def _make_choice(self, text: str) -> Choice:
        """Return the choice of a fault, disabled if it is invalid or cannot be detected."""
        try:
            fault = parse_fault(self._add_rank(text))
        except ValueError as error:
            return Choice(text, str(error), enabled=False)
        missing_rank = fault.explain_missing_rank(self._np) if self._np is not None else None
        if missing_rank is not None:
            return Choice(text, f"the case has {missing_rank}", enabled=False)
        reason = explain_undetectable(self._case, fault)
        summary = reason or describe_fault_and_finder(self._case, fault)
        return Choice(text, summary, enabled=reason is None)
