"""The Plan page: the stages of a model on a cluster, predicted and measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Button, Input, Static

from spbench.errors import SpbenchError
from spbench.planner.nearby_files import find_nearby_files
from spbench.planner.output.emission import emit_suite
from spbench.planner.output.verification import compare_with_run
from spbench.planner.profile_process import measure_profile
from spbench.planner.request import PlanDetails, PlanRequest
from spbench.planner.worker_process import plan_in_process
from spbench.record.runs.files import write_file
from spbench.suites.pipe_files import expand_suite_path
from spbench.tui.chooser import Chooser
from spbench.tui.context import ConsoleContext
from spbench.tui.dialogs import AskLine
from spbench.tui.page import Page
from spbench.tui.plan.form import (
    CLUSTER,
    PROFILE,
    ModeSwitch,
    PlanForm,
    list_clusters,
    list_models,
    list_profiles,
)
from spbench.tui.plan.plan_view import NO_PLAN, NO_PROFILE, PlanView
from spbench.tui.widgets.keys import make_binding
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.tui.feed import Feed

POLL_INTERVAL = 5.0
"""Time between two searches for profiles and clusters, in seconds."""
_SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (150, "-wide")]
"""With 150 columns the memory is next to the stages."""
OUTDATED = "these are the values before your changes; enter plans again"


class PlanPage(Page):
    """The fields, and the plan below them.

    Attributes:
        details: The plan that is shown; None before the first one.
        suite: The file of its suite; None if it is not written.
    """

    NAME = "plan"
    HELP = """\
How to cut a model over a cluster. Enter a profile, a cluster and the batch above; enter plans, in a
process of its own that escape stops. Below are the stages, other ways to train the same model, the
memory of each stage, and one step, which + and - draw longer or shorter. F4 writes a suite that
runs the plan and opens it. F5 writes it and runs it, and then shows measured next to predicted
times."""
    MODIFYING_ACTIONS = frozenset({"emit", "verify"})
    FOOTER = (
        *("plan.stop", "plan.plan", "plan.verify", "plan.emit", "plan.choose", "plan.mode"),
        *("plan.longer", "plan.shorter", "launch.launcher", "launch.hosts"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("plan.choose", "f2,o", "choose", "List", "List profiles and clusters"),
        make_binding(
            "plan.plan", "f3,enter", "plan", "Plan", "Plan what the fields say", show=True
        ),
        make_binding(
            "plan.emit",
            "f4,e",
            "emit",
            "Write suite",
            "Write a suite that runs the plan",
            show=True,
        ),
        make_binding(
            "plan.verify",
            "f5",
            "verify",
            "Run & compare",
            "Run the plan, and compare predicted with measured",
            show=True,
        ),
        make_binding(
            "plan.mode", "m", "mode", "Mode", "Plan as best can be, or as DAPPLE's planner does"
        ),
        make_binding(
            "plan.longer", "plus,equals_sign", "lengthen", "Longer", "Draw the step longer"
        ),
        make_binding("plan.shorter", "minus", "shorten", "Shorter", "Draw the step shorter"),
        make_binding("plan.stop", "escape", "stop", "Stop", "Stop planning, or leave the fields"),
    ]
    DEFAULT_CSS = """
    PlanPage #plan-view { height: 1fr; scrollbar-size-vertical: 1; }
    PlanPage #message { height: auto; padding: 1 2; }
    PlanPage #message.wrong { color: $text-error; }
    PlanPage #upper { height: auto; layout: vertical; }
    PlanPage.-wide #upper { layout: horizontal; }
    PlanPage .column { height: auto; width: 1fr; }
    PlanPage.-wide #left { width: 3fr; }
    PlanPage.-wide #right { width: 2fr; }
    PlanPage #plan-view .pane { height: auto; }
    PlanPage .notes { height: auto; }
    PlanPage #headline { height: auto; margin-bottom: 1; }
    PlanPage StackedBars { height: auto; }
    PlanPage #outdated { height: 1; padding: 0 1; color: $text-warning; }
    PlanPage .hidden { display: none; }
    """
    AUTO_FOCUS = "#plan-view"
    HORIZONTAL_BREAKPOINTS = _SIZES

    def __init__(self, context: ConsoleContext) -> None:
        super().__init__(context)
        self.details: PlanDetails | None = None
        self.suite: Path | None = None
        self._planned_texts: tuple[str, ...] = ()
        self._planning_since: float | None = None
        self._work = ""
        self._message = ""
        self._searched_at = -POLL_INTERVAL
        self._awaited_run: tuple[Path, Feed | None] | None = None
        self._starting = False

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
            self._show_message(
                f"… {self._work}, {time.monotonic() - self._planning_since:.0f} s; escape stops it"
            )
        if time.monotonic() - self._searched_at >= POLL_INTERVAL:
            self._searched_at = time.monotonic()
            self.run_worker(self._find_files(), group="look", exclusive=True)
        self.query_one("#outdated").set_class(not self.is_outdated, "hidden")
        self._check_run()

    async def _find_files(self) -> None:
        files = await asyncio.to_thread(find_nearby_files, self.context.options.folder)
        if self.app.is_running:
            self.form.offer(files)
            if self.details is None and self._message in ("", NO_PLAN):
                has_profiles = bool(files.profiles or files.torchgraphs)
                self.view.show_message(NO_PLAN if has_profiles else NO_PROFILE)

    def _show_message(self, text: str, is_error: bool = False) -> None:
        if is_error or text != self._message:
            self._message = text
            self.view.show_message(text, is_error)

    def await_run(self, path: Path) -> None:
        """Show the measurements of a run of this suite when it has ended."""
        self._awaited_run = (path, self.context.feed)
        self.view.show_pending(f"… {path.name} is running; its times appear here when it has ended")

    def _check_run(self) -> None:
        feed = self.context.feed
        if self._awaited_run is None or self.details is None:
            return
        path, feed_at_start = self._awaited_run
        if self._starting and self.context.starting_since is None:
            self._starting = False
            if feed is feed_at_start:
                self._awaited_run = None
                self.view.show_pending(f"✗ {path.name} was not started")
                return
        if feed is None or not feed.ended:
            return
        run = feed.state.run
        if feed is feed_at_start or run is None or str(path) not in run.argv:
            return
        self._awaited_run = None
        plan = self.details.plan
        cases = list(feed.state.cases.values())
        if len(cases) != 1:  # the user has changed the suite
            self.view.show_pending(
                f"✗ {path.name} ran {format_quantity(len(cases), 'case')}, not the plan alone"
            )
            return
        try:
            self.view.show_measured(plan, compare_with_run(plan, cases[0]))
        except SpbenchError as error:
            self.view.show_pending(f"✗ {error}")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Plan."""
        self.action_plan()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Plan."""
        self.action_plan()

    def action_plan(self) -> None:
        """Plan with the current fields, and discard the previous plan."""
        self.cancel_work("planning")
        self.details = self.suite = self._awaited_run = None
        self._planning_since = None
        try:
            request = self.form.request()
        except SpbenchError as error:
            self._show_message(f"✗ {error}", is_error=True)
            return
        self._planned_texts = self.form.texts
        self._start_work("planning", self._plan(request))

    async def _plan(self, request: PlanRequest) -> None:
        try:
            details = await plan_in_process(request)
        except SpbenchError as error:
            self._planning_since = None
            self._show_message(f"✗ {error}", is_error=True)
        else:
            self._planning_since = None
            self.details = details
            self._message = ""
            self.view.show(details)
            self.view.focus()

    def offers(self, action: str) -> bool:
        """Return whether there is a plan if an action needs one."""
        if action == "stop":
            return self._planning_since is not None
        if action in ("emit", "verify"):
            return self.details is not None and not self.is_outdated
        return action not in ("lengthen", "shorten") or self.details is not None

    def describe_location(self) -> tuple[str, ...]:
        """Return the profile and the cluster of the shown plan."""
        details = self.details
        return () if details is None else (details.profile.name, details.cluster.name)

    def action_stop(self) -> None:
        """Stop planning, and leave the fields."""
        if self._planning_since is not None:
            self.cancel_work("planning")
            self._planning_since = None
            self._show_message(NO_PLAN)
        self.view.focus()

    def action_choose(self) -> None:
        """Choose a cluster if its field has the focus, or else a profile."""
        focused = self.focused.id if self.focused is not None else None
        self.start_action(self._choose, CLUSTER if focused == CLUSTER else PROFILE)

    async def _choose(self, field: str) -> None:
        """Ask for a profile or a cluster, and enter it into its field."""
        options = self.context.options
        if field == CLUSTER:
            choices = await asyncio.to_thread(list_clusters, options.folder, options.home)
        else:
            choices = await asyncio.to_thread(list_profiles, options.folder)
        if not choices:
            await self._offer_measuring()
            return
        title = "Cluster to plan for" if field == CLUSTER else "Profile to plan"
        chosen = await self.app.push_screen_wait(Chooser(title, choices))
        if chosen is not None:
            self.form.set_text(field, chosen)
            self.form.focus_field_after(field)

    async def _offer_measuring(self) -> None:
        """Ask for a model to measure a profile of, since the folder has none."""
        title = "No profile in this folder: measure the layers of"
        model = await self.app.push_screen_wait(Chooser(title, list_models()))
        if model is not None and self.context.readonly:
            self.show_error("a read-only console starts nothing")
        elif model is not None:
            self.cancel_work("planning")
            self._start_work(f"measuring the layers of {model}", self._measure(model))

    async def _measure(self, model: str) -> None:
        options = self.context.options
        try:
            path = await measure_profile(model, options.folder, options.home)
        except SpbenchError as error:
            self._planning_since = None
            self._show_message(f"✗ {error}", is_error=True)
        else:
            self._planning_since = None
            self.form.set_text(PROFILE, path)
            self._show_message(f"✓ {path} is measured; enter plans it")

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
        if path is None or self.is_outdated:
            path = await self._write_suite()
        if path is None:
            return
        if self.context.starting_since is not None:
            self.show_error("not started: another run is just being started")
            return
        self.await_run(path)
        self.context.start_suite(path)
        self._starting = self.context.starting_since is not None

    async def _write_suite(self) -> Path | None:
        """Ask for a file and write the suite of the plan; None if it was not written."""
        details = self.details
        if details is None:
            self.show_error("nothing is planned yet: enter plans what the fields say")
            return None
        if self.is_outdated:
            self.show_error(OUTDATED)
            return None
        plan_args = (details.plan, details.profile, details.cluster)
        folder = self.context.options.folder
        try:
            emitted = await asyncio.to_thread(emit_suite, *plan_args, folder / "plan.yaml")
            prefix = "suites/" if (folder / "suites").is_dir() else ""
            ranks_text = format_quantity(emitted.rank_count, "rank")
            question = f"File of the suite that runs the plan on {ranks_text}:"
            proposed = f"{prefix}{emitted.suite.name}.yaml"
            name = await self.app.push_screen_wait(AskLine(question, proposed))
            if name is None:
                return None
            path = expand_suite_path(folder, name)
            if not await self.confirm_overwrite(path):
                return None
            await asyncio.to_thread(write_file, path, emitted.text)
        except SpbenchError as error:
            self.show_error(str(error))
            return None
        self.suite = path
        self.app.notify(
            f"{path}: {format_quantity(emitted.rank_count, 'rank')}", title="written", markup=False
        )
        return path
