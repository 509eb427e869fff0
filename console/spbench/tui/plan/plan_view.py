"""The pane of a plan: stages, alternatives, memory, one step, and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.planner.output.measured_plan import MeasuredPlan
from spbench.planner.output.plan_description import (
    STAGE_LEGEND,
    describe_plan,
    describe_run_noise,
    describe_step_rest,
    explain_plan,
    list_stage_notes,
)
from spbench.planner.output.plan_inputs import (
    describe_cluster_values,
    describe_device_speed,
    describe_machines,
    describe_network,
)
from spbench.planner.output.plan_reasons import explain_choice
from spbench.planner.plans import Plan
from spbench.planner.request import PlanDetails
from spbench.report.times import format_day_and_time
from spbench.tui.advice import name_keys
from spbench.tui.plan.layer_rows import (
    LAYERS,
    build_layer_table,
    describe_layer_batch,
    describe_layer_sums,
)
from spbench.tui.plan.panes import LevelColumns, PlanColumn, PlanPane
from spbench.tui.plan.plan_rows import (
    ALTERNATIVES,
    DEVICES,
    MEASURED,
    MEMORY_PARTS,
    STAGES,
    WAYS,
    build_alternative_rows,
    build_device_rows,
    build_memory_bars,
    build_stage_rows,
    build_verification_rows,
    describe_measurement,
    describe_memory_parts,
    describe_replicas,
    list_alternative_notes,
)
from spbench.tui.plan.plan_run import StartForecast
from spbench.tui.plan.step_pane import StepPane
from spbench.tui.widgets.fixed_rows import FixedRow, FixedRows, fill_table, get_text
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.stacked_bars import StackedBars
from spbench.tui.widgets.table_columns import Column, lay_out
from spbench.tui.widgets.text import cell_width

_TITLE = "How to split a model over the devices of a cluster, and the time of a step:"
_STEPS = """\
2. Choose a cluster: the machines and devices to plan for. this-machine can
   also run the plan. F2 in its field lists more.
3. Press Enter to plan. F5 then runs the plan and compares its times with
   the predicted ones. F4 writes a suite that runs the plan."""
NO_PLAN = f"""\
{_TITLE}

1. Choose a profile, the measured times of a model's layers. F2 lists
   those of this folder, and Ctrl+N measures a new one.
{_STEPS}"""
_MIN_FRAMED_WIDTH = 100
"""Columns from which panes have frames; a low screen would cut most of them."""
_ALTERNATIVES_LEGEND = "DP: data parallelism, P3: sums during the next step"
_MEASURED_LEGEND = "prediction: compared with the measured time"
_DEVICES_LEGEND = "shares of a step; an all-reduce may overlap passes"
_MODES = """\
Mode best simulates the step of each plan and takes the shortest. Mode hpgo makes the plan of a
published planner, HPGO, which estimates steps by a formula. m changes the mode."""
NO_PROFILE = f"""\
{_TITLE}

1. Press Ctrl+N to measure a profile, the times of a model's layers. This
   folder has none. The form shows the time it takes.
{_STEPS}"""


class PlanView(VerticalScroll, can_focus=True):
    """The scrolling pane of a plan."""

    HELP: ClassVar[str] = """\
The plan, and why it is the best. Stages: the layers of each, its devices, the times of one
micro-batch, the all-reduce of one step, and the peak memory of each device. Alternatives: other
ways to train the same model, each at its best micro-batch size. Mode best also searches these, so
that none is faster than the plan. In mode hpgo they are estimates of DAPPLE's planner. DP is data
parallelism: each device has all layers. With P3, gradients are also summed during the next step.
Memory: the parts of parameters, kept activations and the running pass. Devices: the shares of a
step for passes and all-reduces. Layers: the profile."""

    DEFAULT_CSS = """
    PlanView { height: 1fr; scrollbar-size-vertical: 1; }
    PlanView #message { height: auto; padding: 1 2; }
    PlanView #message.wrong { color: $text-error; }
    PlanView .pane, PlanView .frameless { height: auto; }
    PlanView .frameless { padding: 0 1; }
    PlanView .notes, PlanView #headline, PlanView StackedBars { height: auto; }
    PlanView #inputs { height: auto; color: $text-muted; }
    PlanView #reasons, PlanView #ways { margin-top: 1; }
    PlanView #ways { color: $text-muted; }
    PlanView #forecast { height: auto; margin-bottom: 1; }
    PlanView #run-noise, PlanView #forecast.wrong { color: $text-warning; }
    """

    def __init__(self) -> None:
        super().__init__(id="plan-view")
        self._alternatives: Sequence[FixedRow] = ()
        self._forecast: StartForecast | None = None
        self._is_measured = False

    def compose(self) -> ComposeResult:
        yield Static(NO_PLAN, id="message", markup=False)
        with LevelColumns(id="upper", classes="hidden"):
            with PlanColumn(id="left", classes="column"):
                with PlanPane("Plan", STAGE_LEGEND, id="plan-pane"):
                    yield Static("", id="headline", markup=False)
                    yield Static("", id="measurement", classes="notes hidden", markup=False)
                    yield Static("", id="forecast", markup=False)
                    yield _make_table("stages", STAGES)
                    yield Static("", id="stage-notes", classes="notes", markup=False)
                    yield Static("", id="reasons", classes="notes", markup=False)
                    yield Static("", id="inputs", markup=False)
                with PlanPane("Predicted and measured", _MEASURED_LEGEND, id="measured"):
                    yield _make_table("verification", MEASURED)
                    yield Static("", id="run-noise", classes="notes", markup=False)
                    yield Static("", id="step-parts", classes="notes", markup=False)
                with PlanPane("Alternatives", _ALTERNATIVES_LEGEND):
                    yield _make_table("alternatives", ALTERNATIVES)
                    yield Static("", id="alternative-notes", classes="notes", markup=False)
                    yield Static(WAYS, id="ways", classes="notes", markup=False)
                with PlanPane("The plan in words", id="words-pane"):
                    yield Static("", id="explanation", classes="notes", markup=False)
            with PlanColumn(id="right", classes="column"):
                yield StepPane()
                with PlanPane("Memory of each device, at its peak", id="memory"):
                    yield StackedBars()
                    yield Static("", id="memory-parts", classes="notes", markup=False)
                with PlanPane("Devices", _DEVICES_LEGEND):
                    yield _make_table("devices", DEVICES)
                with PlanPane("Layers", id="layers-pane"):
                    yield _make_table("layers", LAYERS)
                    yield Static("", id="layer-sums", classes="notes", markup=False)

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
        for selector in ("#measured", "#measurement"):
            self.query_one(selector).add_class("hidden")
        self._forecast = None
        self._is_measured = False
        self._show_parts(True)
        title_text, batch_line, *other_lines = describe_plan(details.plan)
        other_lines = [batch_line + describe_replicas(details.plan), *other_lines]
        title = Content.styled(title_text, "bold")
        self.query_one("#headline", Static).update(
            Content("\n").join([title, *map(Content, other_lines)])
        )
        network = describe_network(details.profile)
        machines_text = describe_machines(details.cluster)
        self.query_one("#plan-pane").border_title = Content(f"Plan for {machines_text}")
        cluster_line = describe_cluster_values(details.cluster)
        if details.cluster.is_assumed:
            cluster_line = f"{cluster_line}. Ctrl+S writes these as a file to edit."
        speed_line = describe_device_speed(details.profile, details.cluster)
        inputs = "\n".join(filter(None, (f"profile: {network}", cluster_line, speed_line)))
        self.query_one("#inputs", Static).update(inputs)
        fill_table(self.query_one("#stages", LineTable), STAGES, build_stage_rows(details))
        reasons = explain_choice(details.plan, details.shares, details.memory)
        self.query_one("#reasons", Static).update("\n".join(reasons))
        self.query_one("#forecast", Static).update("")
        notes = [name_keys(note) for note in list_stage_notes(details.plan)]
        self.query_one("#stage-notes", Static).update("\n".join(notes))
        self.query_one("#stage-notes").set_class(not notes, "hidden")
        self._alternatives = build_alternative_rows(details.plan)
        self._show_alternatives()
        # The last row is that of the plan.
        self.query_one("#alternatives", LineTable).move_to(len(self._alternatives) - 1)
        bars, are_capacities = build_memory_bars(details)
        remainder = "free" if are_capacities else "less than the largest stage"
        self.query_one(StackedBars).update(MEMORY_PARTS, bars, remainder)
        full_bar = "the device's memory" if are_capacities else "the largest stage's memory"
        self.query_one("#memory", PlanPane).set_legend(f"a full bar is {full_bar}")
        self.query_one("#memory-parts", Static).update("\n".join(describe_memory_parts(details)))
        device_table = self.query_one("#devices", LineTable)
        fill_table(device_table, DEVICES, build_device_rows(details))
        layers_title = Content(f"Layers of {network}, at batch {details.profile.batch_size}")
        self.query_one("#layers-pane").border_title = layers_title
        fill_table(self.query_one("#layers", LineTable), *build_layer_table(details))
        layer_lines = [describe_layer_sums(details.profile), describe_layer_batch(details)]
        self.query_one("#layer-sums", Static).update("\n".join(filter(None, layer_lines)))
        self.query_one(StepPane).show(details.simulation)
        self.query_one("#explanation", Static).update(
            "\n".join([*explain_plan(details.plan), _MODES.replace("\n", " ")])
        )
        self.scroll_home(animate=False)

    def show_forecast(self, forecast: StartForecast) -> None:
        """Show the run that F5 starts, or the reason why it cannot."""
        self._forecast = forecast
        self._show_forecast()

    def _show_forecast(self) -> None:
        if self._forecast is not None:
            line = self.query_one("#forecast", Static)
            line.update(self._forecast.describe(is_measured=self._is_measured))
            line.set_class(bool(self._forecast.obstacle), "wrong")

    def on_resize(self) -> None:
        """Choose where the notes on alternatives fit, and whether panes have frames."""
        is_framed = self.size.width >= _MIN_FRAMED_WIDTH
        for pane in self.query("PlanPane, StepPane"):
            pane.set_class(is_framed, "pane")
            pane.set_class(not is_framed, "frameless")
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
        for selector in ("#verification", "#run-noise"):
            self.query_one(selector).add_class("hidden")
        self.query_one("#step-parts", Static).update(text)
        self._show_measurement(text)

    def _show_measurement(self, text: str) -> None:
        line = self.query_one("#measurement", Static)
        line.update(text)
        line.remove_class("hidden")

    def show_outcome(self, plan: Plan, outcome: MeasuredPlan | str) -> None:
        """Show the times of the run of the plan, or the reason why it has no times."""
        if isinstance(outcome, str):
            self.show_pending(outcome)
            return
        self.show_measured(plan, outcome)
        self.scroll_to_measured()

    def scroll_to_measured(self) -> None:
        """Show the measurements from their title, unless all of them are in view."""
        # After the next layout, since the table has no height before it.
        self.call_after_refresh(self._scroll_to_measured)

    def _scroll_to_measured(self) -> None:
        pane = self.query_one("#measured")
        if not self.region.contains_region(pane.region):
            pane.scroll_visible(animate=False, top=True)

    def show_measured(self, plan: Plan, measured: MeasuredPlan) -> None:
        """Show the measured next to the predicted times."""
        verification = measured.verification
        self.query_one("#measured").remove_class("hidden")
        table = self.query_one("#verification", LineTable)
        table.remove_class("hidden")
        fill_table(table, MEASURED, build_verification_rows(plan, verification))
        noise_line = describe_run_noise(verification)
        noise = self.query_one("#run-noise", Static)
        noise.update(noise_line)
        noise.set_class(not noise_line, "hidden")
        parts_note = describe_step_rest(plan, verification)
        run_line = f"Run {measured.run}, started {format_day_and_time(measured.started)}."
        self.query_one("#step-parts", Static).update(f"{parts_note}\n{run_line}")
        self._show_measurement(f"{describe_measurement(measured)}. Its parts are below.")
        self._is_measured = True
        self._show_forecast()

    def lengthen(self) -> None:
        """Draw the step longer."""
        self.query_one(StepPane).lengthen()

    def shorten(self) -> None:
        """Draw the step shorter."""
        self.query_one(StepPane).shorten()

    def _show_parts(self, shown: bool) -> None:
        self.query_one("#upper").set_class(not shown, "hidden")


def _make_table(id: str, columns: tuple[Column, ...]) -> LineTable:
    return LineTable(columns, FixedRows(columns), id=id)
