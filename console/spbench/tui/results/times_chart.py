"""A chart of the times of iterations in one run, or in two on the same axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.geometry import Offset

from spbench.record.number_formatting import format_percent
from spbench.report.distribution import SharedAxis, TimeDistribution, fit_axis
from spbench.report.scale import format_ticks
from spbench.tui.widgets.axes import render_labels
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.histogram import MIN_GAP_WIDTH, choose_bin_count
from spbench.tui.widgets.text import cell_width, fit, join_fitting, wrap_words

MAX_BAR_LINES = 12
"""Lines of the highest bar of a run."""
_MAX_LINES_OF_TEXT = 2
"""Lines of a text below the axis."""
_MARGIN = 2
"""Cells left of the picture, for the names a and b."""


@dataclass(frozen=True, slots=True)
class _Glyphs:
    """The signs of a run: bars from empty to full, whisker, quartile box and median."""

    bars: str
    whisker: str
    box: str
    median: str


_GLYPHS = (_Glyphs(" ▁▂▃▄▅▆▇█", "─", "━", "┃"), _Glyphs(" ⣀⣤⣶⣿", "┄", "═", "║"))
_ASCII = (_Glyphs(" .#", "-", "=", "|"), _Glyphs(" ,o", ".", "~", "!"))
_STYLES = ("series-0", "series-1")


class TimesChart(Chart):
    """Bars of the times of each run on one axis, with quartiles, median and a text."""

    HELP: ClassVar[str] = """\
The times of the iterations of a case, of the slowest rank each. Two runs have the same axis. The
bars count the iterations of a run, on one scale for both runs. In the line below them, the thick
part reaches from the lower to the upper quartile, and the upright bar is the median.
(log): an axis of powers. Left, Right, Home, End or a click choose a bar and read it out; Escape
ends that."""
    HEIGHT: ClassVar[int] = 12

    _distributions: Sequence[TimeDistribution] = ()
    _axis: SharedAxis | None = None
    _message = ""
    _conclusion = ""

    def update(
        self, distributions: Sequence[TimeDistribution], conclusion: str = "", message: str = ""
    ) -> None:
        """Show other times.

        Args:
            distributions: One for each run, at most two.
            conclusion: The text below the two descriptions, such as their ratio.
            message: The text if there are no distributions.
        """
        self._distributions = tuple(distributions)
        self._axis = fit_axis(distributions) if distributions else None
        self._conclusion = conclusion
        self._message = message
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of bars."""
        return self._count_bins(self.size.width - _MARGIN) if self._distributions else 0

    def _count_bins(self, cells: int) -> int:
        """Return the number of bins that fill some cells."""
        samples = sum(len(distribution.samples) for distribution in self._distributions)
        return max(0, min(cells, choose_bin_count(samples, cells)))

    def find_stop(self, offset: Offset) -> int | None:
        """Return the bar at a cell."""
        bins = self.count_stops()
        if not bins:
            return None
        bin_width = (self.size.width - _MARGIN) // bins
        return min(bins - 1, max(0, offset.x - _MARGIN) // bin_width)

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return legend, bars, quartiles, axis and text, as far as they fit."""
        axis = self._axis
        if axis is None or width <= _MARGIN:
            message = wrap_words(self._message, width, max(1, height))
            return [[(fit(line, width), "none")] for line in message]
        text: list[list[Piece]] = [
            [(fit(line, width), "text")]
            for text_line in self._list_text(axis, width)
            for line in wrap_words(text_line, width, _MAX_LINES_OF_TEXT)
        ]
        runs = len(self._distributions)
        fixed_lines = 1 + runs + 1
        text = text[max(0, len(text) - max(1, height - fixed_lines)) :]
        bar_lines = max(0, min(MAX_BAR_LINES, (height - fixed_lines - len(text)) // runs))
        bins = self._count_bins(width - _MARGIN)
        bin_width = (width - _MARGIN) // bins
        cells = bins * bin_width
        edges = axis.find_edges(bins)
        counts = [distribution.count_in_bins(edges).counts for distribution in self._distributions]
        highest = max(map(max, counts))
        lines = [self._render_legend(axis, highest)]
        for index, distribution in enumerate(self._distributions):
            heights = self._compute_heights(index, counts[index], highest, bar_lines)
            lines += self._render_bars(index, heights, bin_width, bar_lines)
            lines.append(self._render_quartiles(index, distribution, axis, cells))
        return [*lines, self._render_axis(axis, cells), *text][:height]

    def _get_glyphs(self, index: int) -> _Glyphs:
        return (_ASCII if self.ascii else _GLYPHS)[index]

    def _render_legend(self, axis: SharedAxis, highest: int) -> list[Piece]:
        log_note = " (log)" if axis.scale.log else ""
        title = f"iterations by time in {axis.unit.unit}{log_note}, up to {highest} a bar"
        pieces: list[Piece] = [(title, "title")]
        for index, distribution in enumerate(self._distributions):
            if not distribution.name:
                continue
            name = f"  {self._get_glyphs(index).bars[-1]} {distribution.name}"
            pieces.append((name, _STYLES[index]))
        return pieces

    def _compute_heights(
        self, index: int, counts: Sequence[int], highest: int, rows: int
    ) -> list[int]:
        """Return the heights of bars in steps; the count ``highest`` has all of them."""
        steps = len(self._get_glyphs(index).bars) - 1
        # Any iteration makes a visible bar, however low it is.
        return [max(1, round(count * rows * steps / highest)) if count else 0 for count in counts]

    def _render_bars(
        self, index: int, heights: Sequence[int], bin_width: int, rows: int
    ) -> list[list[Piece]]:
        """Return the bars of a run, with a gap between wide ones."""
        glyphs = self._get_glyphs(index).bars
        steps = len(glyphs) - 1
        gap = " " if bin_width >= MIN_GAP_WIDTH else ""
        lines: list[list[Piece]] = []
        for row in reversed(range(rows)):
            line: list[Piece] = [(" " * _MARGIN, "axis")]
            for stop, bar in enumerate(heights):
                style = "mark" if stop == self.cursor else _STYLES[index]
                glyph = glyphs[max(0, min(steps, bar - row * steps))]
                line.append((glyph * (bin_width - len(gap)) + gap, style))
            lines.append(line)
        return lines

    def _render_quartiles(
        self, index: int, distribution: TimeDistribution, axis: SharedAxis, cells: int
    ) -> list[Piece]:
        glyphs = self._get_glyphs(index)
        samples = distribution.samples
        ends = (samples.smallest, *distribution.quartiles, samples.largest)
        first, lower, upper, last = (axis.scale.to_index(end, cells) for end in ends)
        line = [" "] * cells
        line[first : last + 1] = glyphs.whisker * (last + 1 - first)
        line[lower : upper + 1] = glyphs.box * (upper + 1 - lower)
        line[axis.scale.to_index(distribution.median, cells)] = glyphs.median
        name = fit("ab"[index] if len(self._distributions) > 1 else "", _MARGIN)
        return [(name, "title"), ("".join(line), _STYLES[index])]

    def _render_axis(self, axis: SharedAxis, cells: int) -> list[Piece]:
        ticks = axis.scale.ticks(max(2, cells // 12))
        shown = [axis.unit.convert(tick) for tick in ticks]
        labels = format_ticks(shown, axis.scale.log)
        starts = [_MARGIN + axis.scale.to_index(tick, cells) for tick in ticks]
        placed = list(zip(starts, labels, strict=True))
        return [(render_labels(placed, _MARGIN + cells), "axis")]

    def _list_text(self, axis: SharedAxis, width: int) -> Iterator[str]:
        if self.cursor is not None:
            yield self._describe_bar(axis, self.cursor)
            return
        for distribution in self._distributions:
            yield distribution.describe()
        texts = (distribution.describe_beyond(axis) for distribution in self._distributions)
        notes = list(filter(None, texts))
        joined = "; ".join(notes)
        yield from notes if cell_width(joined) > width else filter(None, [joined])
        if self._conclusion:
            yield self._conclusion

    def _describe_bar(self, axis: SharedAxis, stop: int) -> str:
        edges = axis.find_edges(self.count_stops())
        low, high = (axis.unit.format(edge) for edge in edges[stop : stop + 2])
        phrases = [f"{low} to {high} {axis.unit.unit}"]
        for distribution in self._distributions:
            count = distribution.count_in_bins(edges).counts[stop]
            total = len(distribution.samples)
            share = format_percent(count / total)
            name = f"{distribution.name}: " if distribution.name else ""
            phrases.append(f"{name}{count} of {total} iterations ({share})")
        return join_fitting(phrases, self.size.width)
