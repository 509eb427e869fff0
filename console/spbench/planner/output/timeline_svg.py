"""The timeline of a step as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from spbench.planner.output.plan_description import format_seconds
from spbench.planner.plans import Plan
from spbench.planner.simulation.step import Kind, Simulation, StepSpan

_MARGIN = 64
_ROW = 34
_BAR = 22
_HEAD = 44
_FOOT = 26
_MIN_TEXT_WIDTH = 14.0
"""Pixels of the shortest pass that shows the number of its micro-batch."""
_COLOURS: dict[Kind, str] = {
    "forward": "#4c78a8",
    "backward": "#f2a541",
    "weights": "#f9d99b",
    "send": "#2f9e6e",
    "return": "#2f9e6e",
    "all-reduce": "#b4557f",
}
_LEGEND: tuple[tuple[Kind, str], ...] = (
    ("forward", "forward"),
    ("backward", "backward"),
    ("weights", "weights"),
    ("send", "message"),
    ("all-reduce", "all-reduce"),
)


def render_timeline_svg(plan: Plan, simulation: Simulation, width: int = 1200) -> str:
    """Return a step as an SVG document.

    Each stage is a row with passes as bars that show their micro-batch, and the all-reduce as a
    narrower bar. Messages are thin lines: below the bars those to the next stage, above the bars
    those to the stage before.

    Args:
        plan: The plan.
        simulation: Its step.
        width: Width in pixels; the height depends on the number of stages.
    """
    height = _HEAD + _ROW * len(plan.stages) + _FOOT
    pixels_per_s = (width - 2 * _MARGIN) / simulation.step_s if simulation.step_s else 0.0
    title = f"{plan.profile} on {plan.cluster}, {simulation.schedule}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_draw_legend({span.kind for span in simulation.spans}),
    ]
    for stage in range(len(plan.stages)):
        y = _HEAD + _ROW * stage + _BAR - 7
        lines.append(f'<text x="6" y="{y}">stage {stage}</text>')
    for span in simulation.spans:
        lines += _draw_span(span, pixels_per_s)
    return "\n".join([*lines, *_draw_axis(width, height, simulation.step_s), "</svg>", ""])


def _draw_legend(kinds: set[Kind]) -> Iterator[str]:
    legend = [(kind, name) for kind, name in _LEGEND if kind != "weights" or "weights" in kinds]
    for index, (kind, name) in enumerate(legend):
        x = _MARGIN + 100 * index
        yield f'<rect x="{x}" y="14" width="12" height="12" fill="{_COLOURS[kind]}"/>'
        yield f'<text x="{x + 17}" y="24">{name}</text>'


def _draw_span(span: StepSpan, pixels_per_s: float) -> Iterator[str]:
    x = _MARGIN + span.start_s * pixels_per_s
    width = (span.end_s - span.start_s) * pixels_per_s
    top, height = _find_top_and_height(span)
    label = span.kind if span.micro_batch is None else f"{span.kind} {span.micro_batch}"
    yield (
        f'<rect x="{x:.2f}" y="{top}" width="{max(width, 0.2):.2f}" height="{height}"'
        f' fill="{_COLOURS[span.kind]}" stroke="#fff" stroke-width="0.4">'
        f"<title>{label}: {format_seconds(span.start_s)} to {format_seconds(span.end_s)}</title>"
        "</rect>"
    )
    if span.kind in ("forward", "backward", "weights") and width >= _MIN_TEXT_WIDTH:
        x_middle = x + width / 2
        yield (
            f'<text x="{x_middle:.2f}" y="{top + 15}" text-anchor="middle"'
            f' fill="#111">{span.micro_batch}</text>'
        )


def _find_top_and_height(span: StepSpan) -> tuple[int, int]:
    """Return the top of a span and its height, in pixels."""
    top = _HEAD + _ROW * span.stage
    match span.kind:
        case "send":
            return top + _BAR + 1, 3
        case "return":
            return top - 4, 3
        case "all-reduce":
            return top + _BAR // 3, _BAR // 3
        case _:
            return top, _BAR


def _draw_axis(width: int, height: int, seconds: float) -> Iterator[str]:
    y = height - _FOOT + 4
    yield f'<path d="M{_MARGIN} {y}H{width - _MARGIN}" stroke="#888"/>'
    yield f'<text x="{_MARGIN}" y="{y + 15}">0</text>'
    x_end = width - _MARGIN
    yield f'<text x="{x_end}" y="{y + 15}" text-anchor="end">{format_seconds(seconds)}</text>'
