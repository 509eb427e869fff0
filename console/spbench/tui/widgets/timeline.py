"""The time line of a metric, drawn with dots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.geometry import Offset

from spbench.record.number_formatting import choose_unit as unit_of
from spbench.record.number_formatting import format_value
from spbench.report.scale import Scale, drop_infinite, fit_scale
from spbench.stats.summary import median
from spbench.tui.widgets.axes import add_row_labels, measure_label_width, render_labels
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Dots, Piece
from spbench.tui.widgets.histogram import describe_few
from spbench.tui.widgets.text import fit, join_fitting, wrap_words

MIN_JOINED_VALUES = 3
"""Smallest number of values that are joined by a line; two points are not a trend."""
_MAX_ROWS = 32
"""Lines of the graph; more would show no more detail."""
_MIN_ROWS_FOR_X_AXIS = 6
"""Lines of the graph from which the x axis has numbers."""
_MAX_LIMIT_RATIO = 4
"""A limit above this multiple of the largest value is not drawn, as it would flatten the line."""


@dataclass(slots=True)
class _ColumnValues:
    """A summary of the values that share a column of dots."""

    first: float
    last: float
    low: float
    high: float
    after_gap: bool


class TimelineChart(Chart):
    """Values from the oldest at the left, a dashed line for the limit, and a summary."""

    HELP: ClassVar[str] = (
        "The figure as it was measured, the oldest at the left; the dashed line is its limit.\n"
        "Where there are more values than dots, a dot column goes from the least to the most.\n"
        "▲ at the top marks a value far beyond the others, which is not drawn to scale.\n"
        "Left, Right, Home, End or a click choose a value and read it out; Escape lets it go."
    )

    empty_text = "no values"
    _values: Sequence[float | None] = ()
    _unit = ""
    _better = "none"
    _title = ""
    _limit: float | None = None
    _axis: Scale | None = None
    _above_range = 0
    _x_name = ""
    _x_count = 0

    def update(
        self,
        values: Sequence[float | None],
        unit: str,
        better: str,
        title: str,
        limit: float | None = None,
        *,
        axis: Scale | None = None,
        above_range: int = 0,
        x_name: str = "",
        x_count: int = 0,
    ) -> None:
        """Show other values.

        Args:
            values: The values, the oldest first, with None for a gap.
            unit: The unit of the values.
            better: ``lower``, ``higher`` or ``none``: which values are better.
            title: The title; empty if the frame shows it.
            limit: The worst value allowed; None if there is no limit.
            axis: The scale of the values; None: their range.
            above_range: Number of iterations or repeats beyond the end of ``axis``.
            x_name: The name of the x axis, such as ``iteration``; empty for no axis.
            x_count: The number of the last value.
        """
        numbers = [drop_infinite(value) for value in values]
        present = [value for value in numbers if value is not None]
        # The unit suits the median, so that a single slow value does not change it.
        scale = unit_of([median(present)] if present else [], unit)
        self._values = [None if value is None else scale.convert(value) for value in numbers]
        self._unit = scale.unit
        self._better = better
        self._title = title
        self._limit = None if limit is None else drop_infinite(scale.convert(limit))
        self._axis = axis and Scale(scale.convert(axis.low), scale.convert(axis.high), axis.log)
        self._above_range = above_range
        self._x_name = x_name
        self._x_count = x_count
        self.redraw()

    @property
    def unit(self) -> str:
        """The unit of the numbers next to the line."""
        return self._unit

    def count_stops(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def stride(self) -> int:
        """Return the number of values that share a cell."""
        return max(1, self.count_stops() // max(1, self._measure_graph_width()))

    def find_stop(self, offset: Offset) -> int | None:
        """Return the value nearest to a cell's column."""
        width = self._measure_graph_width()
        if not self._values:
            return None
        x = max(0, min(width - 1, offset.x - (self.size.width - width)))
        return round(x / max(1, width - 1) * (self.count_stops() - 1))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return title, graph and summary; in few lines without title, then without graph."""
        present = [value for value in self._values if value is not None]
        if not present:
            text = "; ".join(filter(None, (self._title, self.empty_text)))
            return [[(fit(line, width), "none")] for line in wrap_words(text, width, height)]
        summary: list[Piece] = [(join_fitting(self._summarize(present), width), "text")]
        if height == 1:
            return [summary]
        has_title = bool(self._title) and height > 2
        available = height - (2 if has_title else 1)
        has_x_axis = self._has_x_axis(available)
        available -= has_x_axis
        rows = min(available, _MAX_ROWS)
        above: list[list[Piece]] = [[] for _ in range(available - rows)]
        scale = self._choose_scale(present)
        graph = self._draw_graph(scale, self._measure_graph_width(), rows)
        margin = self.size.width - graph.width
        lines = add_row_labels(scale, rows, graph.render_lines(), margin)
        if has_x_axis:
            lines.append(self._render_x_axis(margin, graph.width))
        title = [self.render_title(self._title, width)] if has_title else []
        return [*title, *above, *lines, summary]

    def _measure_graph_width(self) -> int:
        present = [value for value in self._values if value is not None]
        available = self.size.height - (2 if self._title else 1)
        available -= self._has_x_axis(available)
        rows = max(1, min(_MAX_ROWS, available))
        label_width = measure_label_width(self._choose_scale(present), rows, self.size.width)
        return max(1, self.size.width - label_width)

    def _has_x_axis(self, rows: int) -> bool:
        return bool(self._x_name) and rows >= _MIN_ROWS_FOR_X_AXIS

    def _render_x_axis(self, margin: int, width: int) -> list[Piece]:
        """Return the numbers of the first and the last value, with the name between them.

        In front of them, below the numbers of the values, is their unit.
        """
        last = margin + width - 1
        unit = "" if self._unit == "1" else self._unit
        labels = [
            (margin // 2, unit),
            (margin, "1"),
            (margin + width // 2, self._x_name),
            (last, str(self._x_count)),
        ]
        return [(render_labels(labels, margin + width), "axis")]

    def _choose_scale(self, present: list[float]) -> Scale:
        limit = self._limit
        log = None if self._axis is None else self._axis.log
        ends = [self._axis.low, self._axis.high] if self._axis is not None else present
        if ends and limit is not None:
            max_drawn_limit = max(abs(value) for value in ends) * _MAX_LIMIT_RATIO
            if abs(limit) <= max_drawn_limit:
                return fit_scale([*ends, limit], log)
        return fit_scale(ends, log)

    def _draw_graph(self, scale: Scale, width: int, height: int) -> Dots:
        dots = Dots(width, height, self.ascii)
        is_joined = sum(value is not None for value in self._values) >= MIN_JOINED_VALUES
        previous: tuple[int, int] | None = None
        for column, values in self._group_by_column(dots.columns).items():
            style = "over" if self._is_over(values.low) or self._is_over(values.high) else "line"
            first = scale.to_index(values.first, dots.rows)
            last = scale.to_index(values.last, dots.rows)
            low = scale.to_index(values.low, dots.rows)
            high = scale.to_index(values.high, dots.rows)
            if is_joined and previous is not None and not values.after_gap:
                if column > previous[0] + 1:
                    dots.draw_line(previous, (column, first), style)
                else:
                    low = min(low, previous[1])
                    high = max(high, previous[1])
            dots.fill_column(column, low, high, style)
            if values.high > scale.high:
                dots.put_glyph(column, dots.rows - 1, "^" if self.ascii else "▲", "mark")
            previous = column, last
        if self.cursor is not None:
            self._draw_cursor(dots, scale)
        if self._limit is not None and scale.low <= self._limit <= scale.high:
            dots.draw_dashed_row(scale.to_index(self._limit, dots.rows), "limit")
        return dots

    def _group_by_column(self, columns: int) -> dict[int, _ColumnValues]:
        values_by_column: dict[int, _ColumnValues] = {}
        after_gap = True
        for index, value in enumerate(self._values):
            if value is not None:
                column = self._find_column(index, columns)
                values = values_by_column.get(column)
                if values is None:
                    values = values_by_column[column] = _ColumnValues(
                        value, value, value, value, after_gap
                    )
                values.last = value
                values.low = min(values.low, value)
                values.high = max(values.high, value)
            after_gap = value is None
        return values_by_column

    def _find_column(self, index: int, columns: int) -> int:
        return index * (columns - 1) // max(1, self.count_stops() - 1)

    def _draw_cursor(self, dots: Dots, scale: Scale) -> None:
        assert self.cursor is not None
        value = self._values[self.cursor]
        column = self._find_column(self.cursor, dots.columns)
        row = 0 if value is None else scale.to_index(value, dots.rows)
        dots.put_glyph(column, row, "+" if self.ascii else "◆", "cursor")

    def _is_over(self, value: float) -> bool:
        if self._limit is None or self._better == "none":
            return False
        return value > self._limit if self._better == "lower" else value < self._limit

    def _summarize(self, present: list[float]) -> Iterator[str]:
        if self.cursor is not None:
            value = self._values[self.cursor]
            text = "no value" if value is None else self._format(value)
            yield f"{self._name_stop(self.cursor)}: {text}"
            yield "over the limit" if value is not None and self._is_over(value) else ""
            return
        if len(present) < MIN_JOINED_VALUES:
            yield describe_few(present, self._unit)
        else:
            yield from self._summarize_range(present)
        if self._limit is not None:
            over_count = sum(map(self._is_over, present))
            yield f"limit {self._format(self._limit)}"
            yield f"{over_count} of {len(present)} beyond it" if over_count else "none beyond it"
        if self._choose_scale(present).log:
            yield "log axis"

    def _name_stop(self, index: int) -> str:
        """Return the number of a value, or the range if it is the worst of several."""
        stops = self.count_stops()
        count = max(stops, self._x_count)
        first, last = (position * count // stops for position in (index, index + 1))
        if last - first < 2:
            return f"{first + 1} of {count}"
        return f"worst of {first + 1} to {last} of {count}"

    def _summarize_range(self, present: list[float]) -> Iterator[str]:
        lowest = self._format(min(present))
        highest = self._format(max(present))
        if self._above_range:  # first, since it explains a sign of the chart
            yield f"{'^' if self.ascii else '▲'} {self._above_range:,} beyond the axis"
        if lowest == highest:
            yield f"always {lowest}"
        else:
            yield f"last {self._format(present[-1])}"
            if self._better == "none":
                yield f"{lowest} to {highest}"
            else:
                yield f"worst {highest if self._better == 'lower' else lowest}"

    def _format(self, value: float) -> str:
        return format_value(value, self._unit)
