"""Several series of points over numbers or categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.geometry import Offset

from spbench.record.number_formatting import format_number
from spbench.report.scale import Scale, drop_infinite, fit_scale, format_round_value, format_ticks
from spbench.tui.widgets.axes import add_row_labels, measure_label_width, render_labels
from spbench.tui.widgets.chart import SERIES_COLOURS, Chart
from spbench.tui.widgets.dots import Dots, Piece
from spbench.tui.widgets.fitting import join_fitting
from spbench.tui.widgets.keys import key

_GLYPHS = "●▲■◆○△"
_ASCII = "ox+#%@"


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """A point; ``low`` and ``high`` are how far off it may be, drawn as an upright line."""

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """Points that belong together, joined by a line."""

    name: str
    points: Sequence[PlotPoint]


@dataclass(frozen=True, slots=True)
class _Spot:
    """A point as it is drawn: its series, its place, and its value."""

    series: int
    x: float
    y: float
    point: PlotPoint


class Plot(Chart):
    """Points by series, each with a glyph of its own beside its colour, and axes with numbers."""

    HELP: ClassVar[str] = (
        "Points by series; each series has its own sign, named in the first line.\n"
        "Left and right go from point to point and read it out; up and down change the series.\n"
        "Home, end and a click choose a point, escape lets it go. (log): an axis of powers."
    )
    HEIGHT: ClassVar[int] = 14
    BINDINGS: ClassVar[list[BindingType]] = [
        key("plot.up", "up", "series(-1)", "Up", "The series before"),
        key("plot.down", "down", "series(1)", "Down", "The next series"),
    ]

    _series: Sequence[PlotSeries] = ()
    _spots: Sequence[_Spot] = ()
    _categories: Sequence[str] = ()
    _titles = ("", "")
    _scales = (Scale(0, 1), Scale(0, 1))

    def update(
        self,
        series: Sequence[PlotSeries],
        x_title: str,
        y_title: str,
        x_log: bool | None = None,
        y_log: bool | None = None,
    ) -> None:
        """Show other points.

        Args:
            series: The series; where any x is text, all are categories in the order they come.
            x_title: What x is, with its unit.
            y_title: What y is, with its unit.
            x_log: Whether x is logarithmic; None: where its range is wide.
            y_log: The same for y.
        """
        self._series = tuple(series)
        self._titles = (x_title, y_title)
        points = [(at, point) for at, one in enumerate(series) for point in one.points]
        points = [(at, point) for at, point in points if _drawable(point)]
        self._categories = _categories([point.x for _, point in points])
        spots = [_Spot(at, self._number(point.x), point.y, point) for at, point in points]
        self._spots = sorted(spots, key=lambda spot: (spot.series, spot.x))
        heights = [y for spot in spots for y in (spot.y, spot.point.low, spot.point.high)]
        self._scales = (
            fit_scale((spot.x for spot in spots), False if self._categories else x_log),
            fit_scale(
                (y for y in heights if drop_infinite(y) is not None and y is not None), y_log
            ),
        )
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of points."""
        return len(self._spots)

    def find_stop(self, at: Offset) -> int | None:
        """Return the point nearest to a cell."""
        if not self._spots or self.size.height < 4:
            return None
        dots, margin = self._frame(*self.size)

        def distance(stop: int) -> float:
            column, row = self._dot(self._spots[stop], dots)
            x = column * dots.width // dots.columns + margin
            y = (dots.rows - 1 - row) * dots.height // dots.rows + 1
            return abs(x - at.x) + 2.0 * abs(y - at.y)  # cells are twice as high as they are wide

        return min(range(self.count_stops()), key=distance)

    def action_series(self, way: int) -> None:
        """Move to the point of the next series that is nearest in x."""
        if self.cursor is None:
            self.action_step(way)
            return
        now = self._spots[self.cursor]
        others = [spot.series for spot in self._spots if (spot.series - now.series) * way > 0]
        if others:
            target = min(others) if way > 0 else max(others)
            near = [at for at, spot in enumerate(self._spots) if spot.series == target]
            self.move_to(min(near, key=lambda at: abs(self._spots[at].x - now.x)))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return legend, picture, numbers below it and words; below four lines words alone."""
        if not self._spots:
            return [[(join_fitting([self._titles[1], "no points yet"], width), "none")]]
        words: list[Piece] = [(join_fitting(self._phrases(), width), "words")]
        if height < 4:
            return [words] if height == 1 else [self._legend(), words]
        dots, margin = self._frame(width, height)
        self._picture(dots)
        lines = add_row_labels(self._scales[1], dots.height, dots.render_lines(), margin)
        return [self._legend(), *lines, [(self._below(dots, margin), "axis")], words]

    def _frame(self, width: int, height: int) -> tuple[Dots, int]:
        """An empty picture, and the cells left of it."""
        margin = measure_label_width(self._scales[1], height - 3, width)
        return Dots(width - margin, height - 3, self.ascii), margin

    def _picture(self, dots: Dots) -> None:
        before: _Spot | None = None
        for spot in self._spots:
            column, row = self._dot(spot, dots)
            style = f"series-{spot.series % SERIES_COLOURS}"
            if before is not None and before.series == spot.series:
                dots.draw_line(self._dot(before, dots), (column, row), style)
            low = drop_infinite(spot.point.low)
            high = drop_infinite(spot.point.high)
            rows = [
                self._scales[1].to_index(y, dots.rows) for y in (low, high, spot.y) if y is not None
            ]
            dots.fill_column(column, min(rows), max(rows), style)
            before = spot
        for at, spot in enumerate(self._spots):
            style = f"series-{spot.series % SERIES_COLOURS}" + (
                " cursor" if at == self.cursor else ""
            )
            dots.put_glyph(*self._dot(spot, dots), self._glyph(spot.series), style)
        if self.cursor is not None:  # on top of the points that share its cell
            spot = self._spots[self.cursor]
            style = f"series-{spot.series % SERIES_COLOURS} cursor"
            dots.put_glyph(*self._dot(spot, dots), self._glyph(spot.series), style)

    def _dot(self, spot: _Spot, dots: Dots) -> tuple[int, int]:
        across, up = self._scales
        return across.to_index(spot.x, dots.columns), up.to_index(spot.y, dots.rows)

    def _glyph(self, series: int) -> str:
        return (_ASCII if self.ascii else _GLYPHS)[series % SERIES_COLOURS]

    def _legend(self) -> list[Piece]:
        log = " (log)" if self._scales[1].log else ""
        pieces: list[Piece] = [(f"{self._titles[1]}{log}", "title")]
        for at, series in enumerate(self._series):
            pieces.append((f"  {self._glyph(at)} {series.name}", f"series-{at % SERIES_COLOURS}"))
        return pieces

    def _below(self, dots: Dots, margin: int) -> str:
        scale = self._scales[0]
        if self._categories:
            marks = [(float(at), name) for at, name in enumerate(self._categories)]
        else:
            ticks = scale.ticks(max(2, dots.width // 12))
            marks = list(zip(ticks, format_ticks(ticks, scale.log), strict=True))
        places = [(margin + scale.to_index(value, dots.width), word) for value, word in marks]
        return render_labels(places, margin + dots.width)

    def _phrases(self) -> list[str]:
        x_title, y_title = self._titles
        if self.cursor is None:
            log = " (log)" if self._scales[0].log else ""
            return [f"across: {x_title}{log}", "left and right read the points out"]
        spot = self._spots[self.cursor]
        x = spot.point.x if isinstance(spot.point.x, str) else format_round_value(spot.point.x)
        low = drop_infinite(spot.point.low)
        high = drop_infinite(spot.point.high)
        span = ""
        if low is not None and high is not None:
            span = f" ({format_number(low)} to {format_number(high)})"
        name = self._series[spot.series].name
        return [f"{name}: {x_title} {x}", f"{y_title} {format_number(spot.y)}{span}"]

    def _number(self, x: float | str) -> float:
        return float(self._categories.index(str(x)) if self._categories else x)


def _drawable(point: PlotPoint) -> bool:
    return drop_infinite(point.y) is not None and (
        isinstance(point.x, str) or drop_infinite(point.x) is not None
    )


def _categories(values: Sequence[float | str]) -> list[str]:
    """The categories in the order they come; none where all are numbers."""
    if not any(isinstance(value, str) for value in values):
        return []
    return list(dict.fromkeys(str(value) for value in values))
