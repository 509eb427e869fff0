"""Plots of lines over a parameter, and of predicted and measured times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from spbench.record.number_formatting import format_number, format_time
from spbench.report.formats.page.charts.frame import Frame, svg_text
from spbench.report.formats.page.markup import Markup, join_markup, svg_number, tag
from spbench.report.predictions import PredictedTime
from spbench.report.scale import Scale

COLOURS = 8
MAX_LINES = 12
"""The largest number of lines in one plot; more cannot be distinguished."""
_MAX_LABELS = 12
_LEGEND = 15.0


@dataclass(frozen=True, slots=True)
class PlottedPoint:
    """One value of a line, the range of its samples, and its reference."""

    x: float
    label: str
    y: float
    low: float | None = None
    high: float | None = None
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """A named line: its points in the order of x."""

    name: str
    points: Sequence[PlottedPoint]

    def scale(self, factor: float) -> PlottedLine:
        """Return the line with all values in another unit."""
        return PlottedLine(self.name, [_scale_point(point, factor) for point in self.points])


def _scale_point(point: PlottedPoint, factor: float) -> PlottedPoint:
    low, high, reference = (
        None if value is None else value * factor
        for value in (point.low, point.high, point.reference)
    )
    return PlottedPoint(point.x, point.label, point.y * factor, low, high, reference)


def draw_lines(title: str, lines: Sequence[PlottedLine], x_name: str, y_name: str) -> Markup:
    """Return a plot of lines, dashed references in the same colour, and a legend."""
    shown_lines = lines[:MAX_LINES]
    points = [point for line in shown_lines for point in line.points]
    legend_rows = [*_generate_legend_rows(shown_lines, len(lines))]
    frame = Frame(
        _make_scale([point.x for point in points], 1.0),
        _make_scale([y_value for point in points for y_value in _list_y_values(point)], 1.12),
        height=250.0 + _LEGEND * len(legend_rows),
        bottom=42.0 + _LEGEND * len(legend_rows),
    )
    drawn_lines = (
        _draw_line(frame, line, index % COLOURS) for index, line in enumerate(shown_lines)
    )
    return frame.draw(
        title,
        frame.draw_y_axis(y_name),
        _draw_x_axis(frame, points, x_name, len(legend_rows)),
        *chain.from_iterable(drawn_lines),
        *_draw_legend(frame, legend_rows),
    )


def _list_y_values(point: PlottedPoint) -> Iterator[float]:
    y_values = (point.y, point.low, point.high, point.reference)
    return (y_value for y_value in y_values if y_value is not None)


def _make_scale(coordinates: Sequence[float], margin: float) -> Scale:
    """Return a scale with a margin, which is logarithmic if all values are above 0."""
    low = min(coordinates)
    high = max(coordinates)
    if low > 0:
        return Scale(low / margin, high * margin, log=True)
    padding = (high - low or 1.0) * (margin - 1.0)
    return Scale(low - padding, high + padding)


def _draw_x_axis(frame: Frame, points: Iterable[PlottedPoint], name: str, rows: int) -> Markup:
    """Return the axis with the labels of points, up to `_MAX_LABELS`."""
    labels = sorted({(point.x, point.label) for point in points})
    stride = max(1, -(-len(labels) // _MAX_LABELS))
    axis = frame.draw_x_axis("", labels[::stride])
    x_middle = (frame.left + frame.data_right) / 2
    y = frame.height - _LEGEND * rows - 8
    return join_markup([axis, svg_text(x_middle, y, name, class_="name")])


def _draw_line(frame: Frame, line: PlottedLine, colour: int) -> Iterator[Markup]:
    positions = [(frame.x_position(point.x), frame.y_position(point.y)) for point in line.points]
    reference_positions = [
        (frame.x_position(point.x), frame.y_position(point.reference))
        for point in line.points
        if point.reference is not None
    ]
    if len(reference_positions) > 1:
        yield tag(
            "polyline", points=_format_points(reference_positions), class_=f"limit-line s{colour}"
        )
    for x, y in reference_positions:
        yield tag("line", x1=x - 5, x2=x + 5, y1=y, y2=y, class_=f"limit-line s{colour}")
    for point in line.points:
        if point.low is not None and point.high is not None:
            x = frame.x_position(point.x)
            y_ends = {"y1": frame.y_position(point.low), "y2": frame.y_position(point.high)}
            yield tag("line", x1=x, x2=x, **y_ends, class_=f"whisker s{colour}")
    if len(positions) > 1:
        yield tag("polyline", points=_format_points(positions), class_=f"line s{colour}")
    for point, (x, y) in zip(line.points, positions, strict=True):
        title = f"{line.name}, {point.label}: {format_number(point.y)}"
        yield tag("circle", tag("title", title), cx=x, cy=y, r=3.0, class_=f"dot s{colour}")


def _format_points(positions: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{svg_number(x)},{svg_number(y)}" for x, y in positions)


def _generate_legend_rows(
    shown: Sequence[PlottedLine], count: int
) -> Iterator[tuple[int | None, str]]:
    if len(shown) > 1:
        yield from ((index % COLOURS, line.name) for index, line in enumerate(shown))
    if any(point.reference is not None for line in shown for point in line.points):
        yield None, "dashed: the reference, measured in the same job"
    if count > len(shown):
        yield None, f"and {count - len(shown)} more lines, which are in the CSV"


def _draw_legend(frame: Frame, rows: Sequence[tuple[int | None, str]]) -> Iterator[Markup]:
    for index, (colour, text) in enumerate(rows):
        y = frame.height - _LEGEND * (len(rows) - index) + 8
        x = frame.left
        if colour is not None:
            yield tag("line", x1=x, x2=x + 18, y1=y - 4, y2=y - 4, class_=f"line s{colour}")
            x += 24
        yield svg_text(x, y, text, anchor="start")


def draw_predictions(predictions: Sequence[PredictedTime]) -> Markup:
    """Return a plot of at least one prediction, on equal logarithmic axes."""
    times_ms = [prediction.predicted_ms for prediction in predictions]
    times_ms += [prediction.measured_ms for prediction in predictions]
    scale = Scale(min(times_ms) / 1.5, max(times_ms) * 1.5, log=True)
    frame = Frame(scale, scale, width=420.0, height=360.0)
    diagonal = {"x1": frame.x_position(scale.low), "y1": frame.y_position(scale.low)}
    diagonal |= {"x2": frame.x_position(scale.high), "y2": frame.y_position(scale.high)}
    return frame.draw(
        "Predicted against measured times",
        frame.draw_y_axis("measured ms"),
        frame.draw_x_axis("predicted ms"),
        tag("line", **diagonal, class_="limit"),
        *(_draw_prediction(frame, prediction) for prediction in predictions),
    )


def _draw_prediction(frame: Frame, prediction: PredictedTime) -> Markup:
    predicted = format_time(prediction.predicted_ms)
    measured = format_time(prediction.measured_ms)
    title = f"{prediction.case}: predicted {predicted}, measured {measured}"
    x = frame.x_position(prediction.predicted_ms)
    y = frame.y_position(prediction.measured_ms)
    return tag("circle", tag("title", title), cx=x, cy=y, r=3.5, class_="dot s0")
