"""Lines over a parameter, on logarithmic axes where values allow it, with references drawn in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spbench.record.number_formatting import format_number, format_time
from spbench.report.formats.page.charts.frame import Frame, svg_text
from spbench.report.formats.page.markup import Markup, join_markup, svg_number, tag
from spbench.report.predictions import PredictedTime
from spbench.report.scale import Scale

COLOURS = 8
MOST_LINES = 12
"""More lines than this in one drawing cannot be told apart."""
_MOST_WORDS = 12
_LEGEND = 15.0


@dataclass(frozen=True, slots=True)
class PlottedPoint:
    """One value of a line, the extent of its samples, and its reference."""

    x: float
    label: str
    y: float
    low: float | None = None
    high: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """Points in the order of x, and what they are."""

    name: str
    points: Sequence[PlottedPoint]

    def scale(self, factor: float) -> PlottedLine:
        """Return the line with all values in another unit."""
        return PlottedLine(self.name, [_scaled(point, factor) for point in self.points])


def _scaled(point: PlottedPoint, factor: float) -> PlottedPoint:
    low, high, limit = (
        None if value is None else value * factor for value in (point.low, point.high, point.limit)
    )
    return PlottedPoint(point.x, point.label, point.y * factor, low, high, limit)


def draw_lines(title: str, lines: Sequence[PlottedLine], x_name: str, y_name: str) -> Markup:
    """Return the lines with a legend below; references are dashed, in the colour of their line."""
    shown = lines[:MOST_LINES]
    points = [point for line in shown for point in line.points]
    rows = [*_legend_words(shown, len(lines))]
    frame = Frame(
        _scale([point.x for point in points], 1.0),
        _scale([value for point in points for value in _extent(point)], 1.12),
        height=250.0 + _LEGEND * len(rows),
        bottom=42.0 + _LEGEND * len(rows),
    )
    return frame.draw(
        title,
        frame.draw_y_axis(y_name),
        _x_axis(frame, points, x_name, len(rows)),
        *(part for at, line in enumerate(shown) for part in _drawn(frame, line, at % COLOURS)),
        *_legend(frame, rows),
    )


def _extent(point: PlottedPoint) -> Iterator[float]:
    values = (point.y, point.low, point.high, point.limit)
    return (value for value in values if value is not None)


def _scale(values: Sequence[float], margin: float) -> Scale:
    """Return a logarithmic scale where all values are above 0, with a margin as a factor."""
    low = min(values)
    high = max(values)
    if low > 0:
        return Scale(low / margin, high * margin, log=True)
    room = (high - low or 1.0) * (margin - 1.0)
    return Scale(low - room, high + room)


def _x_axis(frame: Frame, points: Iterable[PlottedPoint], name: str, rows: int) -> Markup:
    """Return the axis with the parameter's own words, as many as there is room for."""
    words = sorted({(point.x, point.label) for point in points})
    every = max(1, -(-len(words) // _MOST_WORDS))
    bare = frame.draw_x_axis("", words[::every])
    below = frame.height - _LEGEND * rows - 8
    return join_markup(
        [bare, svg_text((frame.left + frame.data_right) / 2, below, name, class_="name")]
    )


def _drawn(frame: Frame, line: PlottedLine, colour: int) -> Iterator[Markup]:
    places = [(frame.x_position(point.x), frame.y_position(point.y)) for point in line.points]
    limits = [
        (frame.x_position(point.x), frame.y_position(point.limit))
        for point in line.points
        if point.limit is not None
    ]
    if len(limits) > 1:
        yield tag("polyline", points=_path(limits), class_=f"limit-line s{colour}")
    for x, y in limits:
        yield tag("line", x1=x - 5, x2=x + 5, y1=y, y2=y, class_=f"limit-line s{colour}")
    for point in line.points:
        if point.low is not None and point.high is not None:
            x = frame.x_position(point.x)
            ends = {"y1": frame.y_position(point.low), "y2": frame.y_position(point.high)}
            yield tag("line", x1=x, x2=x, **ends, class_=f"whisker s{colour}")
    if len(places) > 1:
        yield tag("polyline", points=_path(places), class_=f"line s{colour}")
    for point, (x, y) in zip(line.points, places, strict=True):
        words = f"{line.name}, {point.label}: {format_number(point.y)}"
        yield tag("circle", tag("title", words), cx=x, cy=y, r=3.0, class_=f"dot s{colour}")


def _path(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{svg_number(x)},{svg_number(y)}" for x, y in places)


def _legend_words(shown: Sequence[PlottedLine], count: int) -> Iterator[tuple[int | None, str]]:
    if len(shown) > 1:
        yield from ((at % COLOURS, line.name) for at, line in enumerate(shown))
    if any(point.limit is not None for line in shown for point in line.points):
        yield None, "dashed: the reference, measured in the same job"
    if count > len(shown):
        yield None, f"and {count - len(shown)} more lines, which are in the CSV"


def _legend(frame: Frame, rows: Sequence[tuple[int | None, str]]) -> Iterator[Markup]:
    for at, (colour, words) in enumerate(rows):
        y = frame.height - _LEGEND * (len(rows) - at) + 8
        x = frame.left
        if colour is not None:
            yield tag("line", x1=x, x2=x + 18, y1=y - 4, y2=y - 4, class_=f"line s{colour}")
            x += 24
        yield svg_text(x, y, words, anchor="start")


def draw_predictions(found: Sequence[PredictedTime]) -> Markup:
    """Return the predictions, which are not empty, on equal logarithmic axes."""
    values = [value for one in found for value in (one.predicted_ms, one.measured_ms)]
    scale = Scale(min(values) / 1.5, max(values) * 1.5, log=True)
    frame = Frame(scale, scale, width=420.0, height=360.0)
    corners = {"x1": frame.x_position(scale.low), "y1": frame.y_position(scale.low)}
    corners |= {"x2": frame.x_position(scale.high), "y2": frame.y_position(scale.high)}
    return frame.draw(
        "Predicted against measured times",
        frame.draw_y_axis("measured ms"),
        frame.draw_x_axis("predicted ms"),
        tag("line", **corners, class_="limit"),
        *(_dot(frame, one) for one in found),
    )


def _dot(frame: Frame, one: PredictedTime) -> Markup:
    predicted = format_time(one.predicted_ms)
    measured = format_time(one.measured_ms)
    times = f"predicted {predicted}, measured {measured}"
    words = f"{one.case}: {times}"
    place = {"cx": frame.x_position(one.predicted_ms), "cy": frame.y_position(one.measured_ms)}
    return tag("circle", tag("title", words), **place, r=3.5, class_="dot s0")
