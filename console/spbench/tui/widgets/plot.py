"""A plot of several series of points over numbers or categories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.geometry import Offset

from spbench.record.number_formatting import format_number
from spbench.report.scale import (
    Scale,
    cap_whiskers,
    drop_infinite,
    fit_scale,
    format_round_value,
    format_ticks,
    has_equal_ratios,
)
from spbench.tui.widgets.axes import add_row_labels, measure_label_width, render_labels
from spbench.tui.widgets.chart import SERIES_COLOURS, Chart
from spbench.tui.widgets.dots import Dots, Piece
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import join_fitting
from spbench_core.number_text import format_quantity

_GLYPHS = "●▲■◆○△"
_ASCII = "ox+#%@"
_APART_GLYPH = "◦"
_APART_ASCII = "*"


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """A point; ``low`` and ``high`` are the ends of its error bar.

    A point apart is not joined with its series, and does not widen the scale.
    """

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """Points that are joined by a line."""

    name: str
    points: Sequence[PlotPoint]


@dataclass(frozen=True, slots=True)
class _PlacedPoint:
    """A point with the index of its series and its coordinates as numbers."""

    series: int
    x: float
    y: float
    point: PlotPoint


class Plot(Chart):
    """Points by series, each with its own glyph and colour, and axes with numbers."""

    HELP: ClassVar[str] = (
        "Points by series; each series has its own sign, named in the first line.\n"
        "Left and right go from point to point and read it out; up and down change the series.\n"
        "Home, End and a click choose a point, Escape lets it go. (log): an axis of powers."
    )
    HEIGHT: ClassVar[int] = 14
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("plot.up", "up", "series(-1)", "Up", "The series before"),
        make_binding("plot.down", "down", "series(1)", "Down", "The next series"),
    ]

    _series: Sequence[PlotSeries] = ()
    _points: Sequence[_PlacedPoint] = ()
    _categories: Sequence[str] = ()
    _titles = ("", "")
    _lines_note = ""
    _scales = (Scale(0, 1), Scale(0, 1))

    def update(
        self,
        series: Sequence[PlotSeries],
        x_title: str,
        y_title: str,
        x_log: bool | None = None,
        y_log: bool | None = None,
        lines_note: str = "",
    ) -> None:
        """Show other points.

        Args:
            series: The series. If any x is text, all are categories in the order of appearance.
            x_title: Title of the x axis, with its unit.
            y_title: Title of the y axis, with its unit.
            x_log: Whether x is logarithmic. Default: if its range is wide, or its values grow by
                equal factors.
            y_log: Whether y is logarithmic. Default: if its range is wide.
            lines_note: The meaning of the error bars.
        """
        self._series = tuple(series)
        self._titles = (x_title, y_title)
        self._lines_note = lines_note
        indexed_points = [
            (index, point)
            for index, plot_series in enumerate(series)
            for point in plot_series.points
            if _is_drawable(point)
        ]
        self._categories = _list_categories([point.x for _, point in indexed_points])
        points = [
            _PlacedPoint(index, self._get_x(point.x), point.y, point)
            for index, point in indexed_points
        ]
        self._points = sorted(points, key=lambda point: (point.series, point.x))
        all_x = [point.x for point in points]
        if self._categories:
            x_log = False
        elif x_log is None and has_equal_ratios(all_x):
            x_log = True
        scaled = [point for point in points if not point.point.is_apart] or points
        all_y = [point.y for point in scaled]
        ends = cap_whiskers(all_y, _list_whisker_ends(scaled))
        self._scales = (fit_scale(all_x, x_log), fit_scale([*all_y, *ends], y_log))
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of points."""
        return len(self._points)

    def find_stop(self, offset: Offset) -> int | None:
        """Return the point nearest to a cell."""
        if not self._points or self.size.height < 4:
            return None
        dots, margin = self._make_picture(*self.size)

        def distance(stop: int) -> float:
            column, row = self._find_dot(self._points[stop], dots)
            x = column * dots.width // dots.columns + margin
            y = (dots.rows - 1 - row) * dots.height // dots.rows + 1
            # A cell is twice as high as it is wide.
            return abs(x - offset.x) + 2.0 * abs(y - offset.y)

        return min(range(self.count_stops()), key=distance)

    def action_series(self, direction: int) -> None:
        """Move to the point of the next series that is nearest in x."""
        if self.cursor is None:
            self.action_step(direction)
            return
        current = self._points[self.cursor]
        series_ahead = [
            point.series
            for point in self._points
            if (point.series - current.series) * direction > 0
        ]
        if series_ahead:
            next_series = min(series_ahead) if direction > 0 else max(series_ahead)
            stops = [stop for stop, point in enumerate(self._points) if point.series == next_series]
            self.move_to(min(stops, key=lambda stop: abs(self._points[stop].x - current.x)))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return legend, picture, x labels and summary; with one line only the summary."""
        if not self._points:
            return [[(join_fitting([self._titles[1], "no points"], width), "none")]]
        summary: list[Piece] = [(join_fitting(self._summarize(), width), "text")]
        if height < 4:
            return [summary] if height == 1 else [self._render_legend(), summary]
        dots, margin = self._make_picture(width, height)
        self._draw_points(dots)
        lines = add_row_labels(self._scales[1], dots.height, dots.render_lines(), margin)
        x_axis: list[Piece] = [(self._render_x_labels(dots, margin), "axis")]
        return [self._render_legend(), *lines, x_axis, summary]

    def _make_picture(self, width: int, height: int) -> tuple[Dots, int]:
        """Return an empty picture and the number of cells left of it."""
        margin = measure_label_width(self._scales[1], height - 3, width)
        return Dots(width - margin, height - 3, self.ascii), margin

    def _draw_points(self, dots: Dots) -> None:
        previous: _PlacedPoint | None = None
        for placed in self._points:
            column, row = self._find_dot(placed, dots)
            style = f"series-{placed.series % SERIES_COLOURS}"
            is_apart = placed.point.is_apart
            if not is_apart and previous is not None and previous.series == placed.series:
                dots.draw_line(self._find_dot(previous, dots), (column, row), style)
            low = drop_infinite(placed.point.low)
            high = drop_infinite(placed.point.high)
            rows = [
                self._scales[1].to_index(y, dots.rows)
                for y in (low, high, placed.y)
                if y is not None
            ]
            dots.fill_column(column, min(rows), max(rows), style)
            top = placed.y if high is None else high
            if top > self._scales[1].high:
                dots.put_glyph(column, dots.rows - 1, "^" if self.ascii else "↑", style)
            if low is not None and low < self._scales[1].low:
                dots.put_glyph(column, 0, "v" if self.ascii else "↓", style)
            previous = previous if is_apart else placed
        for stop in range(len(self._points)):
            self._draw_glyph(dots, stop)
        if self.cursor is not None:  # on top of the points that share its cell
            self._draw_glyph(dots, self.cursor)

    def _draw_glyph(self, dots: Dots, stop: int) -> None:
        placed = self._points[stop]
        if placed.y > self._scales[1].high and stop != self.cursor:
            return  # an arrow has its cell
        style = f"series-{placed.series % SERIES_COLOURS}"
        glyph = self._get_glyph(placed.series)
        if placed.point.is_apart:
            style = "axis"
            glyph = self._get_apart_glyph()
        if stop == self.cursor:
            style += " cursor"
        dots.put_glyph(*self._find_dot(placed, dots), glyph, style)

    def _find_dot(self, placed: _PlacedPoint, dots: Dots) -> tuple[int, int]:
        x_scale, y_scale = self._scales
        return x_scale.to_index(placed.x, dots.columns), y_scale.to_index(placed.y, dots.rows)

    def _get_glyph(self, series: int) -> str:
        return (_ASCII if self.ascii else _GLYPHS)[series % SERIES_COLOURS]

    def _get_apart_glyph(self) -> str:
        return _APART_ASCII if self.ascii else _APART_GLYPH

    def _render_legend(self) -> list[Piece]:
        log_note = " (log)" if self._scales[1].log else ""
        pieces: list[Piece] = [(f"{self._titles[1]}{log_note}", "title")]
        for index, series in enumerate(self._series):
            style = f"series-{index % SERIES_COLOURS}"
            pieces.append((f"  {self._get_glyph(index)} {series.name}", style))
        if any(placed.point.is_apart for placed in self._points):
            pieces.append((f"  {self._get_apart_glyph()} not comparable", "axis"))
        return pieces

    def _render_x_labels(self, dots: Dots, margin: int) -> str:
        scale = self._scales[0]
        if self._categories:
            labelled_values = [(float(index), name) for index, name in enumerate(self._categories)]
        else:
            max_ticks = max(2, dots.width // 12)
            values = sorted({point.x for point in self._points})
            ticks = values if 1 < len(values) <= max_ticks else scale.ticks(max_ticks)
            labelled_values = list(zip(ticks, format_ticks(ticks, scale.log), strict=True))
        label_cells = [
            (margin + scale.to_index(value, dots.width), label) for value, label in labelled_values
        ]
        return render_labels(label_cells, margin + dots.width)

    def _summarize(self) -> list[str]:
        x_title, y_title = self._titles
        if self.cursor is None:
            log_note = " (log)" if self._scales[0].log else ""
            joined = [point for point in self._points if not point.point.is_apart]
            cut = [end for end in _list_whisker_ends(joined) if end > self._scales[1].high]
            count = format_quantity(len(cut), "line")
            unit = y_title.rpartition(" in ")[2] if " in " in y_title else ""
            largest = f"{format_number(max(cut))} {unit}".rstrip() if cut else ""
            cut_note = f"{count} beyond the axis, up to {largest}" if cut else ""
            notes = [self._lines_note, cut_note]
            hint = f"{'left, right' if self.ascii else '← →'}: values of a point"
            return [f"x axis: {x_title}{log_note}", *filter(None, notes), hint]
        placed = self._points[self.cursor]
        point = placed.point
        x = point.x if isinstance(point.x, str) else format_round_value(point.x)
        low = drop_infinite(point.low)
        high = drop_infinite(point.high)
        span = ""
        if low is not None and high is not None:
            span = f" ({format_number(low)} to {format_number(high)})"
        name = self._series[placed.series].name
        return [f"{name}: {x_title} {x}", f"{y_title} {format_number(placed.y)}{span}"]

    def _get_x(self, x: float | str) -> float:
        return float(self._categories.index(str(x)) if self._categories else x)


def _list_whisker_ends(points: Iterable[_PlacedPoint]) -> list[float]:
    """Return the finite ends of the error bars of points."""
    ends = [end for placed in points for end in (placed.point.low, placed.point.high)]
    return [end for end in ends if end is not None and drop_infinite(end) is not None]


def _is_drawable(point: PlotPoint) -> bool:
    return drop_infinite(point.y) is not None and (
        isinstance(point.x, str) or drop_infinite(point.x) is not None
    )


def _list_categories(values: Sequence[float | str]) -> list[str]:
    """Return the categories in order of appearance; none if all values are numbers."""
    if not any(isinstance(value, str) for value in values):
        return []
    return list(dict.fromkeys(str(value) for value in values))
