"""The Plan page: the stages of a model on a cluster, predicted and measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input, Static

from spbench.errors import SpbenchError
from spbench.planner.nearby_files import find_nearby_files
from spbench.planner.profile_process import ProfileRequest, measure_profile
from spbench.planner.request import PlanDetails, PlanRequest
from spbench.planner.worker_process import plan_in_process
from spbench.tui.context import ConsoleContext
from spbench.tui.page import Page
from spbench.tui.plan.bindings import PLAN_BINDINGS
from spbench.tui.plan.choices import OWN, ask_for_profile, choose_entry, get_model_to_measure
from spbench.tui.plan.failure import explain_failure
from spbench.tui.plan.form import CLUSTER, PROFILE, ModeSwitch, PlanForm
from spbench.tui.plan.last_plan import LastPlan, load_last_plan, save_last_plan
from spbench.tui.plan.panes import HEIGHTS, WIDTHS
from spbench.tui.plan.plan_run import AwaitedRun, StartForecast, find_measured, forecast_start
from spbench.tui.plan.plan_suite import write_cluster_file, write_plan_suite
from spbench.tui.plan.plan_view import NO_PLAN, NO_PROFILE, PlanView
from spbench.tui.start_queue import StartDecision

POLL_INTERVAL = 5.0
"""Time between two searches for profiles and clusters, in seconds."""
MEASURED = "✓ {file} is measured. Enter plans for the cluster above, c chooses another."
OUTDATED = "these are the values before your changes; enter plans again"


class PlanPage(Page):
    """The fields, and the plan below them.

    Attributes:
        details: The plan that is shown; None before the first one.
        suite: The file of its suite; None if it is not written.
    """

    NAME = "plan"
    HELP = """\
How to split a model over a cluster. Enter a profile, a cluster and the batch above; F2 lists
profiles and clusters, and measures a profile. Enter plans, Escape stops it, and c goes to the
cluster. Below are the reasons for the plan, its stages, other ways to train the model, the memory
of each stage, and one step, which + and - draw longer or shorter. F4 writes a suite that runs the
plan and opens it. F5 writes and runs it, and shows measured next to predicted times, also later."""
    MODIFYING_ACTIONS = frozenset({"emit", "verify", "write_cluster", "measure"})
    FOOTER = (
        *("plan.stop", "plan.plan", "plan.verify", "plan.emit", "plan.choose", "plan.measure"),
        *("plan.cluster", "plan.mode", "plan.write-cluster", "plan.longer", "plan.shorter"),
        *("launch.launcher", "launch.hosts"),
    )
    BINDINGS: ClassVar[list[BindingType]] = PLAN_BINDINGS
    DEFAULT_CSS = """
    PlanPage #upper { height: auto; layout: vertical; }
    PlanPage.-wide #upper { layout: horizontal; min-height: 100%; }
    PlanPage .column { height: auto; width: 1fr; }
    PlanPage.-wide #left { width: 3fr; }
    PlanPage.-wide #right { width: 2fr; }
    PlanPage #outdated { height: 1; padding: 0 1; color: $text-warning; }
    PlanPage .hidden { display: none; }
    PlanPage.-narrow #layers-pane, PlanPage.-low #ways { display: none; }
    """
    AUTO_FOCUS = "#plan-view"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self.details: PlanDetails | None = None
        self.suite: Path | None = None
        self._planned_texts: tuple[str, ...] = ()
        self._planning_since: float | None = None
        self._work = ""
        self._message = ""
        self._searched_at = -POLL_INTERVAL
        self._awaited_run: AwaitedRun | None = None
        self._measured_model = ""
        self._forecast: StartForecast | None = None
        self._forecast_choice: object = None

    def compose_body(self) -> ComposeResult:
        """Yield the fields and the plan."""
        options = self.context.options
        yield PlanForm(options.folder, options.home)
        yield Static(f"▲ {OUTDATED}", id="outdated", classes="hidden", markup=False)
        yield PlanView()

    @property
    def form(self) -> PlanForm:
        """The fields."""
        return self.query_one(PlanForm)

    @property
    def view(self) -> PlanView:
        """The pane of the plan."""
        return self.query_one(PlanView)

    @property
    def is_outdated(self) -> bool:
        """Whether the fields have changed since the shown plan."""
        return self.details is not None and self.form.texts != self._planned_texts

    def refresh_page(self) -> None:
        """Show the progress of planning, find files, and check the awaited run."""
        if self._planning_since is not None:
            seconds = time.monotonic() - self._planning_since
            self._show_message(f"… {self._work}, {seconds:.0f} s; Escape stops it")
        if time.monotonic() - self._searched_at >= POLL_INTERVAL:
            self._searched_at = time.monotonic()
            self._find_files()
        self.query_one("#outdated").set_class(not self.is_outdated, "hidden")
        self._check_run()
        if self.context.run_to_compare is not None:
            self.context.run_to_compare = None
            self.view.scroll_to_measured()
        self._update_forecast()

    @work(exclusive=True, group="look")
    async def _find_files(self) -> None:
        files = await asyncio.to_thread(find_nearby_files, self.context.options.folder)
        if not self.form.has_profile and files.profiles:
            await self._restore_plan(files.profiles[0])
        self.form.offer(files)
        if self.details is None and self._message in ("", NO_PLAN):
            has_profiles = bool(files.profiles or files.torchgraphs)
            self.view.show_message(NO_PLAN if has_profiles else NO_PROFILE)

    async def _restore_plan(self, newest_profile: str) -> None:
        """Plan with the fields of the last plan; if that disturbs, only show them."""
        options = self.context.options
        last_plan = await asyncio.to_thread(
            load_last_plan, options.home, options.folder, newest_profile
        )
        if last_plan is None or self.form.has_profile:
            return
        self.form.fill(last_plan.fields)
        if last_plan.is_quick and not self.context.is_run_active():
            self._plan_fields(takes_focus=False)
        else:
            self._show_message(f"Enter plans {last_plan.title} again.\n\n{NO_PLAN}")

    def _show_message(self, text: str, is_error: bool = False) -> None:
        if is_error or text != self._message:
            self._message = text
            self.view.show_message(text, is_error)

    def _show_failure(self, error: SpbenchError) -> None:
        self._end_work()
        self._show_message(explain_failure(error, self.context.options.folder), is_error=True)

    def await_run(self, path: Path) -> AwaitedRun:
        """Show the measurements of a run of this suite when it has ended."""
        awaited_run = self._awaited_run = AwaitedRun(path, self.context)
        self.view.show_pending(f"… {path.name} is running; its times appear here when it has ended")
        return awaited_run

    def _check_run(self) -> None:
        if self._awaited_run is None or self.details is None:
            return
        outcome = self._awaited_run.find_outcome(self.details.plan)
        if outcome is None:
            return
        self._awaited_run = None
        self.view.show_outcome(self.details.plan, outcome)

    def _update_forecast(self) -> None:
        """Forecast the start again if the launch settings have changed."""
        launch_choice = (self.context.launch_choice, self.context.overrides)
        if self.details is not None and launch_choice != self._forecast_choice:
            self._forecast_choice = launch_choice
            self._show_forecast(self.details)

    @work(exclusive=True, group="forecast", description="the forecast of the start of a plan")
    async def _show_forecast(self, details: PlanDetails) -> None:
        forecast = await asyncio.to_thread(forecast_start, details, self.context)
        if details is self.details:
            self._forecast = forecast
            self.view.show_forecast(forecast)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Plan."""
        self.action_plan()

    def action_plan(self) -> None:
        """Plan with the current fields, and discard the previous plan."""
        self._plan_fields(takes_focus=True)

    def _plan_fields(self, takes_focus: bool) -> None:
        if self._measured_model:
            self.show_error("a profile is being measured; plan after that, or stop it with Escape")
            return
        self.cancel_work("planning")
        self.details = self.suite = self._awaited_run = None
        self._forecast = self._forecast_choice = None
        try:
            request = self.form.request()
        except SpbenchError as error:
            self._show_failure(error)
            return
        self._planned_texts = self.form.texts
        self._start_work("planning", self._plan(request, takes_focus))

    async def _plan(self, request: PlanRequest, takes_focus: bool) -> None:
        fields = self.form.fields
        started = time.monotonic()
        try:
            details = await plan_in_process(request)
        except SpbenchError as error:
            self._show_failure(error)
        else:
            self._planning_since = None
            self.details = details
            self._message = ""
            self.view.show(details)
            if takes_focus:
                self.view.focus()
            self.form.show_profile_batch(details.profile.batch_size)
            if not self.context.readonly:
                last_plan = LastPlan(fields, time.monotonic() - started)
                await asyncio.to_thread(save_last_plan, self.context.options.home, last_plan)
            measured = await asyncio.to_thread(find_measured, details, self.context)
            if measured is not None and details is self.details and self._awaited_run is None:
                self.view.show_measured(details.plan, measured)

    def offers(self, action: str) -> bool:
        """Return whether there is a plan if an action needs one."""
        if action == "stop":
            return self._planning_since is not None
        if action in ("plan", "measure"):
            return not self._measured_model and (action == "measure" or self.form.has_profile)
        if action in ("emit", "verify"):
            return self.details is not None and not self.is_outdated
        if action == "write_cluster":
            return self.details is not None and self.details.cluster.is_assumed
        return action not in ("lengthen", "shorten") or self.details is not None

    def describe_location(self) -> tuple[str, ...]:
        """Return the profile and the cluster of the shown plan."""
        details = self.details
        return () if details is None else (details.profile.name, details.cluster.name)

    def action_stop(self) -> None:
        """Stop planning, and leave the fields."""
        if self._planning_since is not None:
            self.cancel_work("planning")
            self._end_work()
            self._show_message(NO_PLAN)
        self.view.focus()

    def action_choose(self) -> None:
        """Choose a cluster if its field has the focus, or else a profile."""
        focused = self.focused.id if self.focused is not None else None
        self.start_action(self._choose, CLUSTER if focused == CLUSTER else PROFILE)

    async def _choose(self, field: str) -> None:
        """Ask for a profile or a cluster, and enter it into its field."""
        chosen = await choose_entry(self, field)
        if chosen is None:
            return
        model = get_model_to_measure(chosen)
        if chosen == OWN:
            self.form.start_typing(CLUSTER)
        elif model is not None:
            await self._ask_and_measure(model)
        else:
            self.form.set_text(field, chosen)
            self.form.focus_field_after(field)

    def action_measure(self) -> None:
        """Measure a new profile."""
        self.start_action(self._ask_and_measure)

    async def _ask_and_measure(self, kind: str | None = None) -> None:
        """Measure a profile as requested in a form."""
        if self._measured_model:
            self.show_error("a profile is being measured; Escape stops it")
            return
        request = await ask_for_profile(self, kind)
        if request is None:
            return
        title = f"the profile of {request.model}"
        admission = await self.context.start_queue.admit(title, show=False)
        if admission is not StartDecision.REJECTED:
            self.cancel_work("planning")
            self.details = self.suite = self._awaited_run = None
            self._measured_model = request.model
            self._start_work(f"measuring the layers of {request.model}", self._measure(request))
            self.view.focus()

    async def _measure(self, request: ProfileRequest) -> None:
        try:
            await measure_profile(request, self.context.options.folder, self.context.options.home)
        except SpbenchError as error:
            self._show_failure(error)
        else:
            self._end_work()
            self.form.set_text(PROFILE, request.output)
            self._show_message(MEASURED.format(file=request.output))
            if self.view.has_focus:
                self.form.focus_button()  # so that keys of pages are not typed into a field

    def _end_work(self) -> None:
        self._planning_since = None
        self._measured_model = ""

    def _start_work(self, description: str, work: Coroutine[Any, Any, None]) -> None:
        self._work = description
        self._planning_since = time.monotonic()
        self.run_worker(work, group="planning")

    def action_mode(self) -> None:
        """Change the mode."""
        self.query_one(ModeSwitch).action_turn()

    def action_lengthen(self) -> None:
        """Draw the step longer."""
        self.view.lengthen()

    def action_shorten(self) -> None:
        """Draw the step shorter."""
        self.view.shorten()

    def action_emit(self) -> None:
        """Write a suite that runs the plan, and open it."""
        self.start_action(self._emit)

    async def _emit(self) -> None:
        path = await self._write_suite()
        if path is not None:
            self.context.open_suite(path)

    def action_verify(self) -> None:
        """Run the plan; write its suite first if it does not exist."""
        self.start_action(self._verify)

    async def _verify(self) -> None:
        path = self.suite
        forecast = self._forecast
        if forecast is not None and forecast.obstacle and not self.is_outdated:
            self.show_error(f"not started: {forecast.obstacle}")
            return
        if path is None or self.is_outdated:
            question = f"Enter runs it {forecast.text}.\n\nFile of its suite:" if forecast else ""
            path = await self._write_suite(question)
        if path is None:
            return
        admission = await self.context.start_queue.admit(path.name)
        if admission is StartDecision.REJECTED:
            return
        if self.context.starting_since is not None:
            self.show_error("not started: another run is just being started")
            return
        awaited_run = self.await_run(path)
        self.context.start_suite(path, show=admission is StartDecision.AT_ONCE)
        awaited_run.is_starting = self.context.starting_since is not None

    def action_write_cluster(self) -> None:
        """Write the assumed values of the cluster into a file to edit."""
        self.start_action(self._write_cluster)

    async def _write_cluster(self) -> None:
        path = await write_cluster_file(self, self.details)
        if path is not None:
            self.form.set_text(CLUSTER, path)

    async def _write_suite(self, question: str = "") -> Path | None:
        """Write the suite of the plan after a question for its file; None if not written."""
        if self.details is None:
            self.show_error("nothing is planned yet: press Enter to plan first")
        elif self.is_outdated:
            self.show_error(OUTDATED)
        else:
            path = await write_plan_suite(self, self.details, question)
            self.suite = path or self.suite
            return path
        return None
