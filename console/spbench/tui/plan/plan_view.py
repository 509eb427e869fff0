"""The pane of a plan: stages, alternatives, memory, one step, and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.planner.output.plan_description import (
    STAGE_LEGEND,
    THIS_PLAN,
    describe_plan,
    describe_step_parts,
    explain_plan,
    format_baseline_cells,
    format_memory,
    format_stage_cells,
    format_verification_cells,
    list_stage_notes,
)
from spbench.planner.output.verification import Verification
from spbench.planner.plans import Plan
from spbench.planner.request import PlanDetails
from spbench.planner.simulation.stage_memory import StageMemory, find_bar_limits
from spbench.tui.plan.step_pane import StepPane
from spbench.tui.widgets.fixed_rows import FixedRow, FixedRows, fill_table, get_text
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.stacked_bars import Bar, StackedBars
from spbench.tui.widgets.table_columns import Column, TableCell, lay_out
from spbench.tui.widgets.text import cell_width

_STEPS = """\
2. Choose a cluster: 2x8 is two machines of 8 devices; F2 in its field lists others.
3. Press enter. F4 then writes the plan as a suite, and F5 runs it and compares the times."""
NO_PLAN = f"""\
How to split a model over the devices of a cluster, and how long one step takes:

1. Choose a profile, the measured times of a model's layers; F2 lists those of this folder.
{_STEPS}"""
NO_PROFILE = f"""\
How to split a model over the devices of a cluster, and how long one step takes:

1. Measure a profile of a model with F2, or spbench profile resnet --output profiles/resnet.json
{_STEPS}"""
STAGES = (
    Column("stage", "stage", 5, "right"),
    Column("layers", "layers", 14, flexible=True),
    Column("devices", "devices", 7),
    Column("replicas", "replicas", 8, "right", drop_priority=4),
    Column("forward", "forward", 7, "right"),
    Column("backward", "backward", 8, "right"),
    Column("send", "send", 7, "right", drop_priority=3),
    Column("all-reduce", "all-reduce", 10, "right", drop_priority=2),
    Column("memory", "memory", 18),
)
ALTERNATIVES = (
    Column("way", "way", 19),
    Column("step", "step", 8, "right"),
    Column("speedup", "speed-up", 8, "right"),
    Column("reason", "note", 10, flexible=True),
)
MEASURED = (
    Column("stage", "stage", 11, "right"),
    Column("end", "up to", 12, flexible=True),
    Column("predicted", "predicted", 9, "right"),
    Column("measured", "measured", 8, "right"),
    Column("error", "error", 7, "right"),
)
MEMORY_PARTS = ("parameters", "activations", "working")
"""The parts of a stage's memory; their first letters are the letters of the bars."""
_NEARLY_FULL = 0.9
"""Share of a device's memory from which the value is marked."""


class PlanView(VerticalScroll, can_focus=True):
    """The scrolling pane of a plan."""

    HELP: ClassVar[str] = """\
The plan. Stages: the layers of each, its devices, the times of one micro-batch, the all-reduce of
one step, and the peak memory of each device. Alternatives: other ways to train the same model, each
at its best micro-batch size. Mode best also searches these, so that none is faster than the plan.
In mode hpgo they are estimates of DAPPLE's planner. Memory: the parts of parameters, kept
activations and the running pass. Below: one step, and the plan in words."""

    def __init__(self) -> None:
        super().__init__(id="plan-view")
        self._alternatives: Sequence[FixedRow] = ()

    def compose(self) -> ComposeResult:
        yield Static(NO_PLAN, id="message", markup=False)
        with Container(id="upper", classes="hidden"):
            with Vertical(id="left", classes="column"):
                with Vertical(classes="pane", id="stages-pane") as pane:
                    pane.border_title = "Plan"
                    pane.border_subtitle = STAGE_LEGEND
                    yield Static("", id="headline", markup=False)
                    yield _make_table("stages", STAGES)
                    yield Static("", id="stage-notes", classes="notes", markup=False)
                with Vertical(classes="pane") as pane:
                    pane.border_title = "Alternatives"
                    yield _make_table("alternatives", ALTERNATIVES)
                    yield Static("", id="alternative-notes", classes="notes", markup=False)
            with Vertical(id="right", classes="column"):
                with Vertical(classes="pane", id="memory") as pane:
                    pane.border_title = "Memory of each device, at its peak"
                    yield StackedBars()
                with Vertical(classes="pane hidden", id="measured") as pane:
                    pane.border_title = "Predicted and measured"
                    yield _make_table("verification", MEASURED)
                    yield Static("", id="step-parts", classes="notes", markup=False)
        pane = StepPane()
        pane.add_class("hidden")
        yield pane
        with Vertical(classes="pane hidden", id="explanation-pane") as pane:
            pane.border_title = "The plan in words"
            yield Static("", id="explanation", classes="notes", markup=False)

    def show_message(self, text: str, is_error: bool = False) -> None:
        """Show a message instead of a plan."""
        message = self.query_one("#message", Static)
        message.update(text)
        message.set_class(is_error, "wrong")
        message.remove_class("hidden")
        self._show_parts(False)

    def show(self, details: PlanDetails) -> None:
        """Show a plan."""
        self.query_one("#message").add_class("hidden")
        self.query_one("#measured").add_class("hidden")
        self._show_parts(True)
        title_text, *other_lines = describe_plan(details.plan)
        title = Content.styled(title_text, "bold")
        self.query_one("#headline", Static).update(
            Content("\n").join([title, *map(Content, other_lines)])
        )
        fill_table(self.query_one("#stages", LineTable), STAGES, build_stage_rows(details))
        notes = list_stage_notes(details.plan)
        self.query_one("#stage-notes", Static).update("\n".join(notes))
        self.query_one("#stage-notes").set_class(not notes, "hidden")
        self._alternatives = build_alternative_rows(details.plan)
        self._show_alternatives()
        bars, are_capacities = build_memory_bars(details)
        remainder = "free" if are_capacities else "less than most"
        self.query_one(StackedBars).update(MEMORY_PARTS, bars, remainder)
        full_bar = "the devices' memory" if are_capacities else "the most of any stage"
        self.query_one("#memory").border_subtitle = f"against {full_bar}"
        self.query_one(StepPane).show(details.simulation)
        self.query_one("#explanation", Static).update("\n".join(explain_plan(details.plan)))
        self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Choose where the notes on alternatives fit."""
        self._show_alternatives()

    def _show_alternatives(self) -> None:
        """Show the notes in a column, or below the table if it is too narrow for them."""
        table = self.query_one("#alternatives", LineTable)
        columns: Sequence[Column] = ALTERNATIVES
        rows = self._alternatives
        other_columns = lay_out(ALTERNATIVES[:-1], 0, show_all=True).width
        longest = max((cell_width(get_text(row.cells[-1])) for row in rows), default=0)
        fits = other_columns + 1 + longest <= table.size.width
        if not fits:
            columns = ALTERNATIVES[:-1]
            rows = [FixedRow(row.cells[:-1], row.sort_keys[:-1]) for row in rows]
        fill_table(table, columns, rows)
        notes = self.query_one("#alternative-notes", Static)
        notes.update("" if fits else "\n".join(list_alternative_notes(self._alternatives)))
        notes.set_class(fits, "hidden")

    def show_pending(self, text: str) -> None:
        """Show the progress of the run of the plan, or why it has no measurements."""
        self.query_one("#measured").remove_class("hidden")
        self.query_one("#verification").add_class("hidden")
        self.query_one("#step-parts", Static).update(text)

    def show_measured(self, plan: Plan, verification: Verification) -> None:
        """Show the measured next to the predicted times."""
        self.query_one("#measured").remove_class("hidden")
        table = self.query_one("#verification", LineTable)
        table.remove_class("hidden")
        fill_table(table, MEASURED, build_verification_rows(plan, verification))
        self.query_one("#step-parts", Static).update(describe_step_parts(plan, verification))
        # On a small screen the measurements are out of view below the plan.
        self.call_after_refresh(self.query_one("#measured").scroll_visible, animate=False)

    def lengthen(self) -> None:
        """Draw the step longer."""
        self.query_one(StepPane).lengthen()

    def shorten(self) -> None:
        """Draw the step shorter."""
        self.query_one(StepPane).shorten()

    def _show_parts(self, shown: bool) -> None:
        for selector in ("#upper", "StepPane", "#explanation-pane"):
            self.query_one(selector).set_class(not shown, "hidden")


def _make_table(id: str, columns: tuple[Column, ...]) -> LineTable:
    return LineTable(columns, FixedRows(columns), id=id)


def build_stage_rows(details: PlanDetails) -> list[FixedRow]:
    """Return a row for each stage."""
    rows = []
    for index, memory in enumerate(details.memory):
        stage = details.plan.stages[index]
        number, layers, _, devices, *time_texts, _ = format_stage_cells(details.plan, index)
        replicas = str(stage.device_count)
        cells: list[TableCell | str] = [number, layers, devices, replicas, *time_texts]
        cells.append(_make_memory_cell(memory))
        sort_keys = [index, stage.start, stage.devices, stage.device_count]
        sort_keys += [stage.forward_s, stage.backward_s, stage.send_s, stage.all_reduce_s]
        sort_keys.append(memory.peak_bytes)
        rows.append(FixedRow(cells, sort_keys))
    return rows


def build_alternative_rows(plan: Plan) -> list[FixedRow]:
    """Return a row for each alternative, and a marked one for the plan."""
    rows = []
    time_keys = [(baseline.step_s, baseline.speedup) for baseline in plan.baselines]
    time_keys.append((plan.step_s, plan.speedup))
    for texts, row_time_keys in zip(format_baseline_cells(plan), time_keys, strict=True):
        name, step, speedup, reason = texts
        name_cell = TableCell(name, "accent") if name == THIS_PLAN else name
        cells = (name_cell, step, speedup, TableCell(reason, "muted"))
        rows.append(FixedRow(cells, (name, *row_time_keys, reason or None)))
    return rows


def list_alternative_notes(rows: Sequence[FixedRow]) -> list[str]:
    """Return the note of each alternative, equal ones once."""
    names_by_note: dict[str, list[str]] = {}
    for name, *_, note in (map(get_text, row.cells) for row in rows):
        if note:
            names_by_note.setdefault(note, []).append(name)
    return [f"{', '.join(names)}: {note}" for note, names in names_by_note.items()]


def build_verification_rows(plan: Plan, verification: Verification) -> list[FixedRow]:
    """Return a row for each group of devices, and one for the step."""
    rows = []
    cells_by_row = format_verification_cells(plan, verification)
    times_by_row = (*verification.stages, verification.step)
    for index, (cells, times) in enumerate(zip(cells_by_row, times_by_row, strict=True)):
        _, end, *_ = cells
        sort_keys = (index, end or None, times.predicted_ms, times.measured_ms, times.error)
        rows.append(FixedRow(cells, sort_keys))
    return rows


def build_memory_bars(details: PlanDetails) -> tuple[list[Bar], bool]:
    """Return bars of the memory of each stage, and whether they relate to the devices."""
    bar_bytes_by_stage, are_capacities = find_bar_limits(details.memory)
    bars = [
        Bar(
            f"stage {index} {_make_memory_cell(memory).text}",
            [
                part / bar_bytes
                for part in (memory.fixed_bytes, memory.kept_bytes, memory.working_bytes)
            ],
        )
        for index, (memory, bar_bytes) in enumerate(
            zip(details.memory, bar_bytes_by_stage, strict=True)
        )
    ]
    return bars, are_capacities


def _make_memory_cell(memory: StageMemory) -> TableCell:
    if memory.capacity_bytes is None:
        return TableCell(format_memory(memory.peak_bytes))
    share_of_capacity = memory.peak_bytes / memory.capacity_bytes
    style = ""
    if share_of_capacity > 1:
        style = "failed"
    elif share_of_capacity > _NEARLY_FULL:
        style = "slow"
    return TableCell(
        f"{format_memory(memory.peak_bytes)} of {format_memory(memory.capacity_bytes)}", style
    )
