"""The pane of a plan: stages, other ways, memory, a step, and what was measured."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.planner.output.plan_description import (
    STAGE_LEGEND,
    describe_plan,
    describe_step_parts,
    list_stage_notes,
)
from spbench.planner.output.verification import Verification
from spbench.planner.plans import Plan
from spbench.planner.request import PlanDetails
from spbench.tui.plan.plan_rows import (
    MEASURED,
    MEMORY_PARTS,
    STAGES,
    WAYS,
    measured_rows,
    memory_bars,
    stage_rows,
    way_rows,
)
from spbench.tui.plan.step_pane import StepPane
from spbench.tui.widgets.fixed_rows import FixedRows, fill_table
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.stacked_bars import StackedBars
from spbench.tui.widgets.table_columns import Column

NO_PLAN = "Nothing is planned yet: fill in the fields above (F2 shows what there is), then enter."
_FREE = {True: "free", False: "less than most"}
_WHOLE = {
    True: "against the devices' memory",
    False: "against the most of any stage",
}
"""What the bars of the memory stand against, by whether that is the devices'."""


class Sheet(VerticalScroll, can_focus=True):
    """The pane of a plan; it scrolls."""

    HELP: ClassVar[str] = """\
The plan. Stages: the layers of each, its devices, the times of one micro-batch, the all-reduce of
one step, and the peak memory of each device. Alternatives: other ways to train the same, estimated
as the plan is; in mode hpgo by DAPPLE's planner. Memory: what parameters, kept activations and the
running pass take of each stage's devices. Below: one step."""

    def __init__(self) -> None:
        super().__init__(id="sheet")

    def compose(self) -> ComposeResult:
        yield Static(NO_PLAN, id="said", markup=False)
        with Container(id="upper", classes="away"):
            with Vertical(id="left", classes="column"):
                with Vertical(classes="pane", id="stages-pane") as pane:
                    pane.border_title = "Plan"
                    pane.border_subtitle = STAGE_LEGEND
                    yield Static("", id="headline", markup=False)
                    yield _table("stages", STAGES)
                    yield Static("", id="stage-notes", classes="words", markup=False)
                with Vertical(classes="pane") as pane:
                    pane.border_title = "Alternatives"
                    yield _table("ways", WAYS)
            with Vertical(id="right", classes="column"):
                with Vertical(classes="pane", id="memory") as pane:
                    pane.border_title = "Memory of each device, at its peak"
                    yield StackedBars()
                with Vertical(classes="pane away", id="measured") as pane:
                    pane.border_title = "Predicted and measured"
                    yield _table("verified", MEASURED)
                    yield Static("", id="elsewhere", classes="words", markup=False)
        pane = StepPane()
        pane.add_class("away")
        yield pane

    def show_message(self, words: str, wrong: bool = False) -> None:
        """Show words in place of a plan."""
        said = self.query_one("#said", Static)
        said.update(words)
        said.set_class(wrong, "wrong")
        said.remove_class("away")
        self._show_parts(False)

    def show(self, planned: PlanDetails) -> None:
        """Show a plan."""
        self.query_one("#said").add_class("away")
        self.query_one("#measured").add_class("away")
        self._show_parts(True)
        what, *how = describe_plan(planned.plan)
        title = Content.styled(what, "bold")
        self.query_one("#headline", Static).update(Content("\n").join([title, *map(Content, how)]))
        fill_table(self.query_one("#stages", LineTable), STAGES, stage_rows(planned))
        notes = list_stage_notes(planned.plan)
        self.query_one("#stage-notes", Static).update("\n".join(notes))
        self.query_one("#stage-notes").set_class(not notes, "away")
        fill_table(self.query_one("#ways", LineTable), WAYS, way_rows(planned.plan))
        bars, of_devices = memory_bars(planned)
        self.query_one(StackedBars).update(MEMORY_PARTS, bars, _FREE[of_devices])
        self.query_one("#memory").border_subtitle = _WHOLE[of_devices]
        self.query_one(StepPane).show(planned.step)
        self.scroll_home(animate=False)

    def show_pending(self, words: str) -> None:
        """Say what is being measured, or why nothing was."""
        self.query_one("#measured").remove_class("away")
        self.query_one("#verified").add_class("away")
        self.query_one("#elsewhere", Static).update(words)

    def show_measured(self, plan: Plan, verified: Verification) -> None:
        """Show what was measured beside what was predicted."""
        self.query_one("#measured").remove_class("away")
        table = self.query_one("#verified", LineTable)
        table.remove_class("away")
        fill_table(table, MEASURED, measured_rows(plan, verified))
        self.query_one("#elsewhere", Static).update(describe_step_parts(plan, verified))
        # Below the plan itself, where a small screen does not show it.
        self.call_after_refresh(self.query_one("#measured").scroll_visible, animate=False)

    def zoom(self, factor: int) -> None:
        """Draw the step longer or shorter."""
        self.query_one(StepPane).zoom(factor)

    def _show_parts(self, shown: bool) -> None:
        for part in (self.query_one("#upper"), self.query_one(StepPane)):
            part.set_class(not shown, "away")


def _table(id: str, columns: tuple[Column, ...]) -> LineTable:
    return LineTable(columns, FixedRows(columns), id=id)
