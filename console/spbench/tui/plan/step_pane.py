"""One step of a plan, event by event."""

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
"""How many times as long as the pane a step is drawn at most."""
_LEAST = 20
_LABEL = re.compile(r"stage \d+ +")
_PASSES = re.compile(r"[0-9]+|[a-j]+|=+|\.+")
_STYLES = {"=": "$text-warning", ".": "$foreground-muted"}


class StepPane(Vertical):
    """The timeline of a step, a line for each stage; longer than the pane it scrolls."""

    HELP: ClassVar[str] = """\
One step, event by event: a line for each stage. 0 to 9 are forward passes by the last digit of
their micro-batch, a to j the backward passes of the same ones, = sums gradients, . waits. + draws
it longer, - shorter; ← and → go along it."""
    DEFAULT_CSS = """
    StepPane HorizontalScroll { height: auto; scrollbar-size: 1 1; }
    StepPane #line { width: auto; height: auto; }
    StepPane #step-words { height: auto; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="step", classes="pane")
        self.border_title = "One step, event by event"
        self._step: Simulation | None = None
        self._zoom = 1
        self._drawn = (0, 0)

    def compose(self) -> ComposeResult:
        with HorizontalScroll():
            yield Static("", id="line", markup=False)
        yield Static("", id="step-words", markup=False)

    def show(self, step: Simulation) -> None:
        """Show a step in the width there is."""
        self._step = step
        self._zoom = 1
        self._drawn = (0, 0)
        self.query_one("#step-words", Static).update("\n".join(describe_step(step)))
        self._draw()

    def zoom(self, factor: int) -> None:
        """Draw it longer, or shorter by a negative factor."""
        wanted = self._zoom * factor if factor > 0 else self._zoom // -factor
        self._zoom = max(1, min(wanted, MAX_ZOOM))
        self._draw()

    def on_resize(self, event: Resize) -> None:
        """Fit it to the new width."""
        self._draw()

    def _draw(self) -> None:
        wanted = (self.query_one(HorizontalScroll).size.width, self._zoom)
        if self._step is not None and wanted[0] and wanted != self._drawn:
            self._drawn = wanted
            columns = max(_LEAST, wanted[0]) * self._zoom
            self.run_worker(self._fill(self._step, columns), exclusive=True, group="step")

    async def _fill(self, step: Simulation, columns: int) -> None:
        lines = await asyncio.to_thread(_lines, step, columns)
        if self.is_running:
            self.query_one("#line", Static).update(lines)


def _lines(step: Simulation, columns: int) -> Content:
    *stages, axis = render_timeline_text(step, columns)
    axis_line = Content.styled(axis, "$foreground-muted")
    return Content("\n").join([*map(_coloured, stages), axis_line])


def _coloured(line: str) -> Content:
    found = _LABEL.match(line)
    start = found.end() if found else 0
    parts = [(run[0], _style(run[0][0])) for run in _PASSES.finditer(line, start)]
    return Content.assemble((line[:start], "$text-primary"), *parts)


def _style(mark: str) -> str:
    if mark.isdecimal():
        return "$text-accent"
    return _STYLES.get(mark, "$text-success")
