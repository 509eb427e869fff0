"""The Plan page: how to cut a model over a cluster, and whether the prediction holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.widgets import Button, Input

from spbench.errors import SpbenchError
from spbench.planner.near_files import near_files
from spbench.planner.output.verification import verified
from spbench.planner.request import Planned, PlanRequest
from spbench.planner.worker_process import planned_apart
from spbench.tui.page import Page
from spbench.tui.plan import choosing, look, running
from spbench.tui.plan.form import CLUSTER, PROFILE, PlanForm
from spbench.tui.plan.mode_switch import ModeSwitch
from spbench.tui.plan.sheet import NOTHING, Sheet

if TYPE_CHECKING:
    from spbench.tui.feed import Feed

LOOK = 5.0
"""Seconds between two looks for profiles and clusters."""


class PlanPage(Page):
    """Fields above, the plan below.

    Attributes:
        planned: What is shown; None before there is something.
        suite: The file of its suite; None before that is written.
    """

    NAME = "plan"
    HELP = look.HELP
    CHANGES = look.CHANGES
    BINDINGS = look.KEYS
    DEFAULT_CSS = look.CSS
    AUTO_FOCUS = "#sheet"
    HORIZONTAL_BREAKPOINTS = look.SIZES

    def __init__(self) -> None:
        super().__init__()
        self.planned: Planned | None = None
        self.suite: Path | None = None
        self._since: float | None = None
        self._told = ""
        self._looked = -LOOK
        self._awaited: tuple[Path, Feed | None] | None = None

    def compose_body(self) -> ComposeResult:
        """Return the fields and the sheet."""
        opening = self.console_app.opening
        yield PlanForm(opening.folder, opening.home)
        yield Sheet()

    # Parts

    @property
    def form(self) -> PlanForm:
        """The fields."""
        return self.query_one(PlanForm)

    @property
    def sheet(self) -> Sheet:
        """What was planned."""
        return self.query_one(Sheet)

    def complain(self, sentence: str) -> None:
        """Say what is wrong."""
        self.app.notify(sentence, severity="error", timeout=8, markup=False)

    # What goes on

    def refresh_page(self) -> None:
        """Say how long planning takes, look for files, and at what was measured."""
        if self._since is not None:
            self._tell(f"… planning, {time.monotonic() - self._since:.0f} s; escape stops it")
        if time.monotonic() - self._looked >= LOOK:
            self._looked = time.monotonic()
            self.run_worker(self._look(), group="look", exclusive=True)
        self._look_at_run()

    async def _look(self) -> None:
        found = await asyncio.to_thread(near_files, self.console_app.opening.folder)
        if self.is_mounted:
            self.form.offer(found)

    def _tell(self, words: str, wrong: bool = False) -> None:
        if wrong or words != self._told:
            self._told = words
            self.sheet.say(words, wrong)

    def await_run(self, path: Path) -> None:
        """Show what a run of this suite measures, when it has ended."""
        self._awaited = (path, self.console_app.feed)
        self.sheet.await_run(f"… {path.name} runs; its figures stand here when it has ended")

    def _look_at_run(self) -> None:
        feed = self.console_app.feed
        if self._awaited is None or self.planned is None or feed is None or not feed.ended:
            return
        path, before = self._awaited
        run = feed.state.run
        if feed is before or run is None or str(path) not in run.argv:
            return
        self._awaited = None
        plan = self.planned.plan
        cases = list(feed.state.cases.values())
        if len(cases) != 1:  # the file was changed since it was written
            self.sheet.await_run(f"✗ {path.name} ran {len(cases)} cases, not the plan alone")
            return
        try:
            self.sheet.show_measured(plan, verified(plan, cases[0]))
        except SpbenchError as error:
            self.sheet.await_run(f"✗ {error}")

    # Planning

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Plan."""
        self.action_plan()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Plan."""
        self.action_plan()

    def action_plan(self) -> None:
        """Plan what the fields say; what was planned before is forgotten."""
        self.cancel_work("planning")
        self.planned = self.suite = self._awaited = None
        self._since = None
        try:
            request = self.form.request()
        except SpbenchError as error:
            self._tell(f"✗ {error}", wrong=True)
            return
        self._since = time.monotonic()
        self.run_worker(self._plan(request), group="planning")

    async def _plan(self, request: PlanRequest) -> None:
        try:
            planned = await planned_apart(request)
        except SpbenchError as error:
            self._since = None
            self._tell(f"✗ {error}", wrong=True)
        else:
            self._since, self.planned, self._told = None, planned, ""
            self.sheet.show(planned)
            self.sheet.focus()

    # Actions

    def _begin(self, action: Callable[..., Awaitable[object]], *more: object) -> None:
        self.run_worker(partial(action, self, *more), group="action")

    def action_stop(self) -> None:
        """Stop planning; else leave the fields."""
        if self._since is not None:
            self.cancel_work("planning")
            self._since = None
            self._tell(NOTHING)
        self.sheet.focus()

    def action_choose(self) -> None:
        """Choose a cluster where its field has the focus, else a profile."""
        focused = self.focused.id if self.focused is not None else None
        self._begin(choosing.choose, CLUSTER if focused == CLUSTER else PROFILE)

    def action_mode(self) -> None:
        """Change the mode."""
        self.query_one(ModeSwitch).action_turn()

    def action_zoom(self, factor: int) -> None:
        """Draw the step longer or shorter."""
        self.sheet.zoom(factor)

    def action_emit(self) -> None:
        """Write a suite that runs the plan, and open it."""
        self._begin(running.emit)

    def action_verify(self) -> None:
        """Run the plan."""
        self._begin(running.verify)
