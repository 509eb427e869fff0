"""The timeline of one step of a plan."""

from __future__ import annotations

import asyncio
import re
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import HorizontalScroll, Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from spbench.planner.output.plan_description import describe_step
from spbench.planner.output.timeline_text import render_timeline_text
from spbench.planner.simulation.step import Simulation

MAX_ZOOM = 64
"""Largest width of a step, in multiples of the pane's width."""
_MIN_COLUMNS = 20
_LABEL = re.compile(r"stage \d+ +")
_PASSES = re.compile(r"[0-9]+|[a-j]+|[A-J]+|=+|\.+")
_STYLE_BY_MARK = {"=": "$text-warning", ".": "$foreground-muted"}


class StepPane(Vertical):
    """The timeline of a step with a line for each stage; a long one scrolls."""

    HELP: ClassVar[str] = """\
One step, event by event, with a line for each stage. 0 to 9 are forward passes, by the last digit
of the number of their micro-batch. a to j are the backward passes of the same micro-batches, = is
an all-reduce of gradients, and . is waiting. Schedule 1f1b alternates forward and backward passes
as early as possible. With schedule zb-h1, A to J compute weight gradients.
+ draws the step longer, - draws it shorter, ← and → scroll it."""
    DEFAULT_CSS = """
    StepPane HorizontalScroll { height: auto; scrollbar-size: 1 1; }
    StepPane #timeline { width: auto; height: auto; }
    StepPane #step-notes { height: auto; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="step", classes="pane")
        self.border_title = "One step, event by event"
        self._simulation: Simulation | None = None
        self._zoom = 1
        self._drawn_columns = 0

    def compose(self) -> ComposeResult:
        with HorizontalScroll():
            yield Static("", id="timeline", markup=False)
        yield Static("", id="step-notes", markup=False)

    def show(self, simulation: Simulation) -> None:
        """Show a step in the width of the pane."""
        self._simulation = simulation
        self._zoom = 1
        self._drawn_columns = 0
        self.query_one("#step-notes", Static).update("\n".join(describe_step(simulation)))
        self._draw()

    def lengthen(self) -> None:
        """Draw the step twice as long, up to `MAX_ZOOM`."""
        self._zoom = min(2 * self._zoom, MAX_ZOOM)
        self._draw()

    def shorten(self) -> None:
        """Draw the step half as long, but not shorter than the pane."""
        self._zoom = max(1, self._zoom // 2)
        self._draw()

    def on_resize(self, event: Resize) -> None:
        """Fit the step to the new width."""
        self._draw()

    def _draw(self) -> None:
        width = self.query_one(HorizontalScroll).size.width
        if self._simulation is None or not width:
            return
        columns = max(_MIN_COLUMNS, width) * self._zoom
        if columns != self._drawn_columns:
            self._drawn_columns = columns
            self.run_worker(self._fill(self._simulation, columns), exclusive=True, group="step")

    async def _fill(self, simulation: Simulation, columns: int) -> None:
        lines = await asyncio.to_thread(_render_step, simulation, columns)
        self.query_one("#timeline", Static).update(lines)


def _render_step(simulation: Simulation, columns: int) -> Content:
    *stages, axis = render_timeline_text(simulation, columns)
    axis_line = Content.styled(axis, "$foreground-muted")
    return Content("\n").join([*map(_render_stage, stages), axis_line])


def _render_stage(line: str) -> Content:
    label = _LABEL.match(line)
    start = label.end() if label else 0
    pieces = [
        (mark_run[0], _choose_style(mark_run[0][0])) for mark_run in _PASSES.finditer(line, start)
    ]
    return Content.assemble((line[:start], "$text-primary"), *pieces)


def _choose_style(mark: str) -> str:
    if mark.isdecimal():
        return "$text-accent"
    if mark.isupper():
        return "$text-secondary"
    return _STYLE_BY_MARK.get(mark, "$text-success")
