"""The timeline of a step as lines of text, one for each stage."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from spbench.planner.output.plan_description import format_seconds
from spbench.planner.simulation.step import Simulation, StepSpan

_NARROW = 20
_MARKS = {
    "forward": "0123456789",
    "backward": "abcdefghij",
    "weights": "ABCDEFGHIJ",
    "all-reduce": "=",
}
"""The marks of passes by the last digit of their micro-batch."""
IDLE = "."


def render_timeline_text(simulation: Simulation, width: int) -> list[str]:
    """Return a line for each stage and one for the time axis.

    A character shows the work that takes most of its share of the step: ``0`` to ``9`` for the
    forward pass of a micro-batch, by the last digit of its number, ``a`` to ``j`` for the
    backward pass of the same one, ``A`` to ``J`` for its weight gradients if they are computed
    separately, ``=`` for the all-reduce, and ``.`` for idle time.

    Args:
        simulation: The step.
        width: The most characters of a line; at least 20.
    """
    stages = len(simulation.in_flight)
    label_width = len(f"stage {stages - 1} ")
    columns = max(width, _NARROW) - label_width
    lines = []
    for stage, spans in enumerate(list_column_spans(simulation, columns)):
        row = "".join(map(_find_mark, spans))
        lines.append(f"{f'stage {stage}':<{label_width}}{row}")
    return [*lines, _render_axis(label_width, columns, simulation.step_s)]


def list_column_spans(simulation: Simulation, columns: int) -> list[list[StepSpan | None]]:
    """Return the work of each stage in equal parts of a step.

    The work that takes most of a part is chosen; None if most of the part is idle.

    Args:
        simulation: The step.
        columns: The number of parts.
    """
    return [
        _list_row_spans(
            [span for span in simulation.spans if span.stage == stage and span.kind in _MARKS],
            simulation.step_s / columns,
            columns,
        )
        for stage in range(len(simulation.in_flight))
    ]


def _list_row_spans(
    spans: Iterable[StepSpan], column_s: float, columns: int
) -> list[StepSpan | None]:
    longest_by_column: list[tuple[float, StepSpan | None]] = [(0.0, None)] * columns
    idle_s = [column_s] * columns
    for span in spans:
        first = min(int(span.start_s / column_s), columns - 1)
        last = min(int(span.end_s / column_s), columns - 1)
        for column in range(first, last + 1):
            overlap_s = min(span.end_s, (column + 1) * column_s) - max(
                span.start_s, column * column_s
            )
            if span.kind != "all-reduce":
                idle_s[column] -= overlap_s
            longest_by_column[column] = max(
                longest_by_column[column], (overlap_s, span), key=itemgetter(0)
            )
    return [
        span if overlap_s >= column_idle_s else None
        for (overlap_s, span), column_idle_s in zip(longest_by_column, idle_s, strict=True)
    ]


def _find_mark(span: StepSpan | None) -> str:
    if span is None:
        return IDLE
    marks = _MARKS[span.kind]
    return marks[(span.micro_batch or 0) % len(marks)]


def _render_axis(label_width: int, columns: int, seconds: float) -> str:
    end = format_seconds(seconds)
    return f"{'':{label_width}}0{end:>{columns - 1}}"
