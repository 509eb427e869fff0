"""The timeline of one step of a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import HorizontalScroll, Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from spbench.planner.output.plan_description import (
    describe_bubble,
    describe_schedule,
    format_seconds,
)
from spbench.planner.output.timeline_text import list_column_spans
from spbench.planner.simulation.step import Kind, Simulation, StepSpan

MAX_ZOOM = 64
"""Largest width of a step, in multiples of the pane's width."""
_MIN_COLUMNS = 20
_IDLE = "·"
_LETTER_BY_KIND: dict[Kind, str] = {
    "forward": "F",
    "backward": "B",
    "weights": "W",
    "all-reduce": "=",
}
_TONE_BY_KIND: dict[Kind, str] = {
    "forward": "$text-primary",
    "backward": "$text-success",
    "weights": "$text-secondary",
    "all-reduce": "$text-warning",
}
_MEANING_BY_KIND: dict[Kind, str] = {
    "forward": "F0 forward pass of micro-batch 0",
    "backward": "B0 backward pass",
    "weights": "W0 weight gradients",
    "all-reduce": "= all-reduce of gradients",
}


class StepPane(Vertical):
    """The timeline of a step with a line for each stage; a long one scrolls."""

    HELP: ClassVar[str] = """\
One step, event by event, with a line for each stage. A block is a pass: F0 is the forward pass of
micro-batch 0, B0 its backward pass, and = is an all-reduce of gradients. Dots are waiting. Schedule
1f1b alternates forward and backward passes as early as possible. With schedule zb-h1, W0 computes
the gradients of weights. A short block has only the letter.
+ draws the step longer, - draws it shorter, ← and → scroll it."""
    DEFAULT_CSS = """
    StepPane HorizontalScroll { height: auto; scrollbar-size: 1 1; }
    StepPane #timeline { width: auto; height: auto; }
    StepPane #step-notes { height: auto; margin-top: 1; }
    """

    def __init__(self) -> None:
        super().__init__(id="step", classes="pane")
        self.border_title = "One step, event by event"
        self._simulation: Simulation | None = None
        self._zoom = 1
        self._drawn_columns = 0
        self._notes_width = 0

    def compose(self) -> ComposeResult:
        with HorizontalScroll():
            yield Static("", id="timeline", markup=False)
        yield Static("", id="step-notes", markup=False)

    def show(self, simulation: Simulation) -> None:
        """Show a step in the width of the pane."""
        self._simulation = simulation
        self._zoom = 1
        self._drawn_columns = 0
        self._notes_width = 0
        # A pane out of view is drawn when it is scrolled to, but must not grow then.
        self.query_one("#timeline").styles.min_height = len(simulation.in_flight) + 1
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
        if width != self._notes_width:
            self._notes_width = width
            self.query_one("#step-notes", Static).update(_describe_step(self._simulation, width))
        if columns != self._drawn_columns:
            self._drawn_columns = columns
            # Not a coroutine object: Python warns if one is cancelled before it starts.
            fill: Callable[[], Awaitable[None]] = partial(self._fill, self._simulation, columns)
            self.run_worker(fill, exclusive=True, group="step")

    async def _fill(self, simulation: Simulation, columns: int) -> None:
        lines = await asyncio.to_thread(_render_step, simulation, columns)
        self.query_one("#timeline", Static).update(lines)


def _render_step(simulation: Simulation, columns: int) -> Content:
    """Return a line of blocks for each stage, and the axis of time."""
    label_width = len(f"stage {len(simulation.in_flight) - 1} ")
    row_columns = columns - label_width
    lines = [
        Content.assemble(
            (f"{f'stage {stage}':<{label_width}}", "$text-primary"), *_draw_blocks(spans)
        )
        for stage, spans in enumerate(list_column_spans(simulation, row_columns))
    ]
    end = format_seconds(simulation.step_s)
    axis = f"{'':{label_width}}0{end:>{row_columns - 1}}"
    return Content("\n").join([*lines, Content.styled(axis, "$foreground-muted")])


def _draw_blocks(spans: Sequence[StepSpan | None]) -> list[tuple[str, str]]:
    """Return the text and style of each block; adjacent micro-batches differ in shade."""
    blocks = []
    for span, columns in groupby(spans):
        width = len(list(columns))
        if span is None:
            blocks.append((_IDLE * width, "$foreground-muted"))
            continue
        shade = "85%" if (span.micro_batch or 0) % 2 else "100%"
        style = f"$background on {_TONE_BY_KIND[span.kind]} {shade}"
        blocks.append((_label(span, width), style))
    return blocks


def _label(span: StepSpan, width: int) -> str:
    """Return the letter of a block and its micro-batch, or as much as fits whole."""
    letter = _LETTER_BY_KIND[span.kind]
    if span.kind == "all-reduce":
        return letter * width
    text = f"{letter}{span.micro_batch}"
    return (text if len(text) <= width else letter).ljust(width)


def _join_whole(items: Iterable[Content], width: int) -> Iterator[Content]:
    """Yield lines of items, none of which is broken if it fits into the width."""
    line = Content("")
    for item in items:
        joined = item if not line else line + Content("  ") + item
        if line and joined.cell_length > width:
            yield line
            joined = item
        line = joined
    yield line


def _describe_step(simulation: Simulation, width: int) -> Content:
    """Return the meaning of the blocks, the schedule, and the bubble."""
    kinds = {span.kind for span in simulation.spans}
    legend = [
        Content.assemble(("■ ", tone), _MEANING_BY_KIND[kind])
        for kind, tone in _TONE_BY_KIND.items()
        if kind in kinds
    ]
    legend.append(Content.assemble((f"{_IDLE} ", "$foreground-muted"), "waiting"))
    lines = list(_join_whole(legend, width))
    if len(simulation.in_flight) > 1:
        lines.append(Content(describe_schedule(simulation.schedule)))
    lines.append(Content(describe_bubble(simulation)))
    return Content("\n").join(lines)
