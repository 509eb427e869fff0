"""The dialog that asks for a fault to plant in cases, and for its rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Checkbox, Input, OptionList, Static

from spbench.suites.case import Case
from spbench.suites.inject import (
    describe_effect,
    describe_finder,
    explain_undetectable,
    list_effective_faults,
    list_faults,
)
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench_core.catalog.planted_fault import PlantedFault, parse_fault
from spbench_core.number_text import format_quantity

_PLACEHOLDER = "type to find, or a factor: slow=3 takes 3 times as long"


class OnlyCase(Checkbox, inherit_bindings=False):
    """A box for planting the fault in one case only; Enter is for the dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "toggle_button", "Toggle", id="fault.toggle"),
        Binding("left", "screen.step_case(-1)", "Case before", id="fault.case-before"),
        Binding("right", "screen.step_case(1)", "Next case", id="fault.next-case"),
    ]
    BUTTON_LEFT = "["
    BUTTON_INNER = " "
    BUTTON_RIGHT = "]"

    def watch_value(self) -> None:
        """Show a cross if it is on; by default only the colour differs."""
        self.BUTTON_INNER = "x" if self.value else " "
        super().watch_value()


class FaultDialog(Chooser):
    """A list of faults with a field for the rank; returns ``FAULT[,rank=RANK]``.

    Args:
        cases: The cases to run.
        selected: The one of them that is offered first as the only one with the fault.
        np_by_case: The numbers of ranks of their launches by id, if they are known.

    Attributes:
        faulty_cases: The cases in which the chosen fault is planted.
    """

    HELP: ClassVar[str] = """\
Type words to find a fault or what it does. Enter plants the marked fault, and the run must find it.
slow takes a factor: slow=3 takes 3 times as long. Tab goes to the rank of the fault; without a
number it is the last one. The line below the list says how the run finds the marked fault. With
several marked cases, each that can find the fault has it. Tab and space then plant it only in the
named case, ← and → name another one, and the others run without a fault."""
    OTHER_ROWS: ClassVar[int] = 11
    DEFAULT_CSS = """
    FaultDialog #finder { height: auto; min-height: 2; max-height: 3; color: $text-muted; }
    FaultDialog #finder.wrong { color: $text-error; }
    FaultDialog #ranks Static { width: auto; color: $text-muted; }
    FaultDialog #rank { width: 20; margin: 0 1; }
    FaultDialog OnlyCase, FaultDialog OnlyCase > .toggle--button {
        padding: 0; color: $foreground; background: transparent;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "plant", "Plant", show=False, id="fault.plant", tooltip="Plant the fault"),
    ]

    def __init__(
        self, cases: Sequence[Case], selected: Case, np_by_case: Mapping[str, int]
    ) -> None:
        self._cases = cases
        self._selected = selected
        self._np_by_case = np_by_case
        self._targets = cases
        self._rank_text = ""
        self._fault_names = {case.id: list_effective_faults(case) for case in cases}
        self.faulty_cases: Sequence[Case] = ()
        run = selected.id if len(cases) == 1 else f"the {len(cases):,} marked cases"
        title = f"Enter plants the fault and runs {run}"
        super().__init__(title, (), _PLACEHOLDER, self._find_typed_choice)
        self._update_choices()

    def on_mount(self) -> None:
        """Show the faults, and the fields for rank and case below them."""
        frame = self.query_one(Vertical)
        frame.mount(Static("", id="finder", markup=False))
        np = self._find_rank_count()
        last = "the last rank" if np is None else f"rank {np - 1}, the last"
        row = Horizontal(
            Static("rank"),
            Input(placeholder=last, select_on_focus=False, id="rank", compact=True),
            Static(self._describe_ranks(np), id="rank-hint", markup=False),
            id="ranks",
        )
        frame.mount(row)
        if len(self._cases) > 1:
            frame.mount(OnlyCase(self._label_selected(), compact=True))
        self._show_outcome()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the faults that match, with the effects that they have in the rank."""
        if event.input.id == "rank":
            event.prevent_default()
            self._rank_text = event.value.strip()
            self._update_matches()

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        """Plant the fault in one case, or in all."""
        self._targets = [self._selected] if event.value else self._cases
        self._update_matches()

    def action_step_case(self, step: int) -> None:
        """Name another one of the marked cases as the only one with the fault."""
        index = self._cases.index(self._selected) + step
        self._selected = self._cases[index % len(self._cases)]
        box = self.query_one(OnlyCase)
        box.label = self._label_selected()
        if box.value:
            self._targets = [self._selected]
            self._update_matches()

    def on_option_list_option_highlighted(self) -> None:
        """Show how the marked fault is found."""
        self._show_outcome()

    def explain_rejection(self, choice: Choice) -> None:
        """Show why a fault is not planted."""
        reason = choice.summary.removeprefix("not detectable: ")
        self._show_finder(f"{PROBLEM_SIGN} not planted: {reason}", wrong=True)

    def action_plant(self) -> None:
        """Choose the marked fault while no field has the focus."""
        self.on_input_submitted()

    def choose(self, choice: Choice) -> None:
        """Return the fault with its rank."""
        fault = self._add_rank(choice.name)
        self.faulty_cases = self._find_detecting_cases(parse_fault(fault))
        self.dismiss(fault)

    def list_injects(self, fault: str) -> list[str]:
        """Return the values of ``--inject`` that plant a fault in the faulty cases."""
        name = parse_fault(fault).name
        if [case for case in self._cases if name in list_faults(case)] == self.faulty_cases:
            return [fault]
        return [f"{fault}@{case.id}" for case in self.faulty_cases]

    def _find_rank_count(self) -> int | None:
        """Return the ranks that each case has; None if they are unknown."""
        return min((self._np_by_case.get(case.id, 0) for case in self._cases), default=0) or None

    def _describe_ranks(self, np: int | None) -> str:
        """Return the ranks that can be typed, and the key for that."""
        if np is None:
            return "a number; Tab goes here"
        return "its only rank" if np == 1 else f"0 to {np - 1}; Tab goes here"

    def _add_rank(self, fault: str) -> str:
        """Return a fault with the typed rank, unless its text has one."""
        return fault if not self._rank_text or "," in fault else f"{fault},rank={self._rank_text}"

    def _label_selected(self) -> Content:
        return Content(f"only in {self._selected.id} (Tab, then space; ← → name another)")

    def _narrow(self, text: str) -> None:
        super()._narrow(text)
        self._show_outcome()

    def _show_outcome(self) -> None:
        """Show the effect of Enter, and how the marked fault is found."""
        marked = self.query_one(OptionList).highlighted
        choice = self._shown[marked] if marked is not None and self._shown else None
        title = "No fault to plant is marked"
        if choice is not None:
            title = self._question
        elif self._shown:
            title = f"{self._shown[0].name} cannot be planted here"
        self.query_one(Vertical).border_title = Content(title)
        self._show_finder("" if choice is None else self._describe_finder(choice.name))

    def _show_finder(self, text: str, *, wrong: bool = False) -> None:
        for static in self.query("#finder").results(Static):  # none before it is mounted
            static.set_class(wrong, "wrong")
            static.update(text)

    def _describe_finder(self, text: str) -> str:
        fault = parse_fault(self._add_rank(text))
        return describe_finder(self._find_detecting_cases(fault)[0], fault)

    def _update_matches(self) -> None:
        self._update_choices()
        self._narrow(self.query_one("#find", Input).value)

    def _update_choices(self) -> None:
        names = dict.fromkeys(name for case in self._targets for name in self._fault_names[case.id])
        self._choices = [self._make_choice(name) for name in names]

    def _find_typed_choice(self, text: str) -> Choice | None:
        """Return the choice of a typed fault with a factor or a rank; None without one."""
        return self._make_choice(text) if "=" in text else None

    def _make_choice(self, text: str) -> Choice:
        """Return the choice of a fault, disabled if it is invalid or no case detects it."""
        try:
            fault = parse_fault(self._add_rank(text))
        except ValueError as error:
            return Choice(text, str(error), enabled=False)
        detecting_cases = self._find_detecting_cases(fault)
        if not detecting_cases:
            reasons = [
                self._explain_missed(case, fault) for case in self._list_knowing_cases(fault)
            ]
            return Choice(text, next(iter(reasons), f"unknown fault {fault.name}"), enabled=False)
        summary = describe_effect(detecting_cases[0], fault)
        count = len(self._targets)
        if count > 1:
            share = "all" if len(detecting_cases) == count else f"{len(detecting_cases):,} of"
            summary = f"in {share} {format_quantity(count, 'case')}: {summary}"
        return Choice(text, summary)

    def _list_knowing_cases(self, fault: PlantedFault) -> list[Case]:
        return [case for case in self._targets if fault.name in self._fault_names[case.id]]

    def _find_detecting_cases(self, fault: PlantedFault) -> list[Case]:
        cases = self._list_knowing_cases(fault)
        return [case for case in cases if not self._explain_missed(case, fault)]

    def _explain_missed(self, case: Case, fault: PlantedFault) -> str:
        """Return why a case cannot have or detect a fault; empty if it can."""
        np = self._np_by_case.get(case.id)
        missing_rank = None if np is None else fault.explain_missing_rank(np)
        if missing_rank is not None:
            return f"{case.id} has {missing_rank}"
        return explain_undetectable(case, fault) or ""
