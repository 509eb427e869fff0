"""A figure over time, as a line of dots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.geometry import Offset

from spbench.record.number_formatting import format_value
from spbench.record.number_formatting import scale_of as unit_of
from spbench.report.scale import Scale, drop_infinite, fit_scale
from spbench.stats.summary import median
from spbench.tui.widgets.axes import add_row_labels, measure_label_width
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Dots, Piece
from spbench.tui.widgets.fitting import join_fitting
from spbench.tui.widgets.histogram import MAX_BAR_LINES

MIN_JOINED_VALUES = 3
"""Values from which on a line joins them: two points are not a trend."""
_FAR = 4
"""A limit this many times the largest value away would press the line flat: words tell it."""


@dataclass(slots=True)
class _Span:
    """The values that share a column of dots."""

    first: float
    last: float
    low: float
    high: float
    after_gap: bool


class TimeLine(Chart):
    """The values from the oldest at the left, the limit as a dashed line, and both in words."""

    HELP: ClassVar[str] = (
        "The figure as it was measured, the oldest at the left; the dashed line is its limit.\n"
        "Where there are more values than dots, a dot column goes from the least to the most.\n"
        "Left, right, home, end or a click choose a value and read it out; escape lets it go."
    )

    _values: Sequence[float | None] = ()
    _unit = ""
    _better = "none"
    _title = ""
    _limit: float | None = None

    def update(
        self,
        values: Sequence[float | None],
        unit: str,
        better: str,
        title: str,
        limit: float | None = None,
    ) -> None:
        """Show other values.

        Args:
            values: The values, the oldest first; None where there is a gap.
            unit: Their unit.
            better: ``lower``, ``higher`` or ``none``: which of them are the worse ones.
            title: What they are; empty if the frame has it.
            limit: The worst that is allowed; None where nothing is said about it.
        """
        numbers = [drop_infinite(value) for value in values]
        known = [value for value in numbers if value is not None]
        # The unit of most values, whatever the slowest one needs.
        scale = unit_of([median(known)] if known else [], unit)
        self._values = [None if value is None else scale.convert(value) for value in numbers]
        self._unit = scale.unit
        self._better = better
        self._title = title
        self._limit = None if limit is None else drop_infinite(scale.convert(limit))
        self.redraw()

    @property
    def unit(self) -> str:
        """The unit of the numbers next to the line."""
        return self._unit

    def count_stops(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def stride(self) -> int:
        """Return how many values share a cell."""
        return max(1, self.count_stops() // max(1, self._graph_width()))

    def find_stop(self, at: Offset) -> int | None:
        """Return the value nearest to a cell's column."""
        width = self._graph_width()
        if not self._values:
            return None
        x = max(0, min(width - 1, at.x - (self.size.width - width)))
        return round(x / max(1, width - 1) * (self.count_stops() - 1))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return title, graph and words; the title and then the graph go where there is no room."""
        known = [value for value in self._values if value is not None]
        if not known:
            return [[(join_fitting([self._title, "no values yet"], width), "none")]]
        words: list[Piece] = [(join_fitting(self._phrases(known), width), "words")]
        if height == 1:
            return [words]
        titled = bool(self._title) and height > 2
        room = height - (2 if titled else 1)
        rows = min(room, MAX_BAR_LINES)
        above: list[list[Piece]] = [[] for _ in range(room - rows)]
        scale = self._scale(known)
        graph = self._graph(scale, self._graph_width(), rows)
        lines = add_row_labels(scale, rows, graph.render_lines(), self.size.width - graph.width)
        title = [self.title_line(self._title, width)] if titled else []
        return [*title, *above, *lines, words]

    def _graph_width(self) -> int:
        known = [value for value in self._values if value is not None]
        rows = max(1, min(MAX_BAR_LINES, self.size.height - (2 if self._title else 1)))
        return max(
            1, self.size.width - measure_label_width(self._scale(known), rows, self.size.width)
        )

    def _scale(self, known: list[float]) -> Scale:
        limit = self._limit
        if known and limit is not None:
            reach = max(abs(value) for value in known) * _FAR
            if abs(limit) <= reach:
                return fit_scale([*known, limit])
        return fit_scale(known)

    def _graph(self, scale: Scale, width: int, height: int) -> Dots:
        dots = Dots(width, height, self.ascii)
        joined = sum(value is not None for value in self._values) >= MIN_JOINED_VALUES
        before: tuple[int, int] | None = None
        for x, span in self._spans(dots.columns).items():
            style = "over" if self._is_over(span.low) or self._is_over(span.high) else "line"
            ends = (span.first, span.last, span.low, span.high)
            first, last, low, high = (scale.to_index(value, dots.rows) for value in ends)
            if joined and before is not None and not span.after_gap:
                if x > before[0] + 1:
                    dots.draw_line(before, (x, first), style)
                else:
                    low, high = min(low, before[1]), max(high, before[1])
            dots.fill_column(x, low, high, style)
            before = x, last
        if self.cursor is not None:
            self._mark(dots, scale)
        if self._limit is not None and scale.low <= self._limit <= scale.high:
            dots.draw_dashed_row(scale.to_index(self._limit, dots.rows), "limit")
        return dots

    def _spans(self, columns: int) -> dict[int, _Span]:
        spans: dict[int, _Span] = {}
        gap = True
        for at, value in enumerate(self._values):
            if value is not None:
                x = self._column(at, columns)
                span = spans.get(x)
                if span is None:
                    span = spans[x] = _Span(value, value, value, value, gap)
                span.last = value
                span.low, span.high = min(span.low, value), max(span.high, value)
            gap = value is None
        return spans

    def _column(self, at: int, columns: int) -> int:
        return at * (columns - 1) // max(1, self.count_stops() - 1)

    def _mark(self, dots: Dots, scale: Scale) -> None:
        assert self.cursor is not None
        value = self._values[self.cursor]
        row = 0 if value is None else scale.to_index(value, dots.rows)
        dots.put_glyph(
            self._column(self.cursor, dots.columns), row, "+" if self.ascii else "◆", "cursor"
        )

    def _is_over(self, value: float) -> bool:
        if self._limit is None or self._better == "none":
            return False
        return value > self._limit if self._better == "lower" else value < self._limit

    def _phrases(self, known: list[float]) -> Iterator[str]:
        if self.cursor is not None:
            value = self._values[self.cursor]
            what = "no value" if value is None else self._amount(value)
            yield f"{self.cursor + 1} of {self.count_stops()}: {what}"
            yield "over the limit" if value is not None and self._is_over(value) else ""
            return
        yield f"last {self._amount(known[-1])}"
        if self._better == "none":
            yield f"{self._amount(min(known))} to {self._amount(max(known))}"
        else:
            worst = max(known) if self._better == "lower" else min(known)
            yield f"worst {self._amount(worst)}"
        if self._limit is not None:
            over = sum(map(self._is_over, known))
            yield f"limit {self._amount(self._limit)}"
            yield f"{over} of {len(known)} beyond it" if over else "none beyond it"
        if self._scale(known).log:
            yield "logarithmic axis"

    def _amount(self, value: float) -> str:
        return format_value(value, self._unit)
