"""A histogram of samples with vertical bars."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from textual.geometry import Offset

from spbench.record.number_formatting import (
    choose_unit,
    format_factor,
    format_percent,
    format_value,
)
from spbench.report.scale import Scale
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.glyphs import format_ratio
from spbench.tui.widgets.text import cell_width, fit, join_fitting, wrap_words
from spbench_core.number_text import format_quantity

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .#"
MIN_BINS = 8
MAX_BINS = 60
MIN_SAMPLES_FOR_BARS = 3
"""Fewer samples are listed instead of drawn."""
MAX_BAR_LINES = 24
"""Lines of the highest bar; higher bars would show no more detail of a distribution."""
MIN_BAR_LINES = 3
MIN_BAR_LINES_BELOW_LIST = 10
"""Lines that the highest bar keeps if quantiles are listed above the bars."""
_MAX_COUNTS = 4
"""Most counts at the left of the bars."""
_VALUE_WIDTH = 12
_RATIO_GAP = "   "
MIN_GAP_WIDTH = 3
"""Cells of a bin from which the last one is left free, so that bars do not melt together."""
MIN_AXIS_WIDTH = 24
"""Cells of the chart from which the counts are at its left."""


class HistogramChart(Chart):
    """Bars of sample counts, an axis with marks, and a summary line."""

    HELP: ClassVar[str] = (
        "How the samples are spread: each bar counts those between two values.\n"
        "The axis runs from the smallest to the largest; ▲ marks median, p95 and p99.\n"
        "With several repeats, the median is that of their medians, as in the tables.\n"
        "A few samples far beyond the others are not drawn, but counted (▶). log: powers of ten.\n"
        "Left, Right, Home, End or a click choose a bar and read it out (◆); Escape lets it go."
    )

    empty_text = "no samples"
    _edges: Sequence[float] = ()
    _counts: Sequence[int] = ()
    _unit = ""
    _marks: Mapping[str, float] = {}
    _quantiles: Mapping[str, float] = {}
    _few: Sequence[float] = ()
    _above_range = 0
    _largest = 0.0
    _is_log = False
    _median_name = "median"

    def update(
        self,
        edges: Sequence[float],
        counts: Sequence[int],
        unit: str,
        marks: Mapping[str, float] | None = None,
        *,
        few: Sequence[float] = (),
        above_range: int = 0,
        largest: float = 0.0,
        log: bool = False,
        quantiles: Mapping[str, float] | None = None,
        median_name: str = "median",
    ) -> None:
        """Show other samples.

        Args:
            edges: The ends of the bins, ascending: one more than counts, or none at all.
            counts: Number of samples in each bin.
            unit: The unit of edges and marks.
            marks: Values to mark on the axis, by name, the most important first.
            few: The samples, if they are too few for bars.
            above_range: Number of samples beyond the last edge.
            largest: The largest of these samples.
            log: Whether the bins have equal ratios.
            quantiles: Values by name that are listed where lines are free.
            median_name: The name of the median in that list.

        Raises:
            ValueError: The numbers of edges and counts do not match.
        """
        if len(edges) != len(counts) + 1 and (edges or counts):
            raise ValueError(f"{len(counts)} bins have {len(counts) + 1} edges, not {len(edges)}")
        scale = choose_unit(edges, unit)
        self._edges = tuple(map(scale.convert, edges))
        self._counts = tuple(counts)
        self._unit = scale.unit
        self._marks = {name: scale.convert(value) for name, value in (marks or {}).items()}
        self._quantiles = {name: scale.convert(value) for name, value in (quantiles or {}).items()}
        self._few = tuple(map(scale.convert, few))
        self._above_range = above_range
        self._largest = scale.convert(largest)
        self._is_log = log
        self._median_name = median_name
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of bins."""
        return len(self._counts)

    def stride(self) -> int:
        """Return the smallest number of bins in a cell."""
        return max(1, self.count_stops() // self._measure_bars_width(self.size.width))

    def find_stop(self, offset: Offset) -> int | None:
        """Return the first bin of a cell's column."""
        if not self.count_stops():
            return None
        width = self._measure_bars_width(self.size.width)
        x = max(0, offset.x - self._measure_margin(self.size.width))
        return self._find_bins(min(x, width - 1), width).start

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return bars, axis and summary, as far as the lines suffice for the three."""
        if not sum(self._counts):
            lines = wrap_words(self.empty_text, width, height)
            return [[(fit(line, width), "none")] for line in lines]
        if self._few:
            return [[(join_fitting([describe_few(self._few, self._unit)], width), "text")]]
        summary: list[Piece] = [(join_fitting(self._summarize(), width), "text")]
        if height == 1:
            return [summary]
        available = height - (2 if height > 2 else 1)
        # At most two lines for each sample, so that few samples are not a wall.
        max_rows = min(MAX_BAR_LINES, max(MIN_BAR_LINES, 2 * max(self._counts)))
        above: list[list[Piece]] = []
        if self._quantiles:
            list_lines = len(self._quantiles) + 1
            if available - list_lines >= min(max_rows, MIN_BAR_LINES_BELOW_LIST):
                above = [*self._render_quantiles(width), []]
        rows = min(available - len(above), max_rows)
        # Free lines are above the bars, so that the axis is at the bottom of its pane.
        above += [[] for _ in range(available - len(above) - rows)]
        bars_width = self._measure_bars_width(width)
        bars = self._render_bars(bars_width, rows)
        margin = self._measure_margin(width)
        if margin:
            bars = self._add_counts(bars, margin)
        axis: list[list[Piece]] = []
        if height > 2:
            axis = [[(" " * margin, "axis"), *self._render_axis(bars_width)]]
        return [*above, *bars, *axis, summary]

    def _render_quantiles(self, width: int) -> list[list[Piece]]:
        """Return a line for each quantile."""
        names_width = max(map(cell_width, (*self._quantiles, self._median_name)))
        ratios = self._describe_ratios(width - names_width - _VALUE_WIDTH - len(_RATIO_GAP))
        rows: list[list[Piece]] = []
        for name, value in self._quantiles.items():
            text = fit(self._format(value), _VALUE_WIDTH, "right")
            ratio = _RATIO_GAP + ratios[name] if ratios else ""
            label_text = self._median_name if name == "median" else name
            label = (fit(label_text, names_width), "axis")
            rows.append([label, (fit(text + ratio, max(1, width - names_width)), "text")])
        return rows

    def _describe_ratios(self, width: int) -> Mapping[str, str]:
        """Return each quantile over the median; without words if these do not fit."""
        median = self._quantiles.get("median", 0.0)
        if median <= 0:
            return {}
        ratios = {name: value / median for name, value in self._quantiles.items()}
        texts = {name: format_ratio(ratio) for name, ratio in ratios.items()}
        if max(map(cell_width, texts.values())) <= width:
            return texts
        return {name: format_factor(ratio) for name, ratio in ratios.items()}

    def _measure_bars_width(self, width: int) -> int:
        """Return the cells of the bars, right of the counts."""
        available = max(1, width - self._measure_margin(width))
        stops = self.count_stops()
        # Bars of different widths would look like different counts.
        return available - available % stops if 0 < stops <= available else available

    def _measure_margin(self, width: int) -> int:
        """Return the cells of the counts left of the bars."""
        if width < MIN_AXIS_WIDTH or not self._counts:
            return 0
        return len(str(max(self._counts))) + 1

    def _add_counts(self, bars: Sequence[Sequence[Piece]], margin: int) -> list[list[Piece]]:
        """Return the lines of the bars with round counts at their left."""
        label_by_row = _choose_counts(max(self._counts), len(bars))
        lines = []
        for row, line in zip(reversed(range(len(bars))), bars, strict=True):
            label = label_by_row.get(row, "")
            end = "|" if self.ascii else "│┤"[bool(label)]
            lines.append([(fit(label, margin - 1, "right") + end, "axis"), *line])
        return lines

    def _find_bins(self, x: int, width: int) -> range:
        """Return the bins in a column of cells."""
        start = x * self.count_stops() // width
        return range(start, max(start + 1, (x + 1) * self.count_stops() // width))

    def _render_bars(self, width: int, rows: int) -> list[list[Piece]]:
        glyphs = _ASCII if self.ascii else _BLOCKS
        steps_per_row = len(glyphs) - 1
        max_count = max(self._counts)
        bars = []
        for x in range(width):
            bins = self._find_bins(x, width)
            mean_count = sum(self._counts[bins.start : bins.stop]) / len(bins)
            # Any sample makes a visible bar, however low it is.
            height_in_steps = (
                max(round(mean_count * rows * steps_per_row / max_count), 1) if mean_count else 0
            )
            selected = self.cursor is not None and self.cursor in bins
            if self._is_gap(x, width):
                height_in_steps = 0
            bars.append((height_in_steps, "mark" if selected else "bar"))
        return [
            [
                (glyphs[max(0, min(steps_per_row, height_in_steps - row * steps_per_row))], style)
                for height_in_steps, style in bars
            ]
            for row in reversed(range(rows))
        ]

    def _is_gap(self, x: int, width: int) -> bool:
        """Return whether a column of cells is the gap between two bars."""
        if width < MIN_GAP_WIDTH * self.count_stops() or x + 1 == width:
            return False
        return self._find_bins(x, width) != self._find_bins(x + 1, width)

    def _render_axis(self, width: int) -> list[Piece]:
        """Return the smallest and the largest value, with the marks that fit between them."""
        lowest_text = self._format(self._edges[0])
        highest_text = self._format(self._edges[-1])
        if self._above_range:
            highest_text += f", {self._above_range} beyond " + (">" if self.ascii else "▶")
        line = ["-" if self.ascii else "─"] * width
        pointer = "^" if self.ascii else "▲"
        is_cell_used = [False] * width
        for text, start in ((lowest_text, 0), (highest_text, width - cell_width(highest_text))):
            _write(line, is_cell_used, text, start)
        for name, value in self._marks.items():
            bin_index = max(0, min(self.count_stops() - 1, bisect_right(self._edges, value) - 1))
            x = self._find_middle(bin_index, width)
            if not _write(line, is_cell_used, pointer + name, x):
                _write(line, is_cell_used, name + pointer, x - cell_width(name))
        if self.cursor is not None:
            line[self._find_middle(self.cursor, width)] = "@" if self.ascii else "◆"
        return [("".join(line), "axis")]

    def _find_middle(self, bin_index: int, width: int) -> int:
        """Return the middle column of cells of a bin."""
        first_column = -(-bin_index * width // self.count_stops())
        last_column = ((bin_index + 1) * width - 1) // self.count_stops()
        return min(last_column, (first_column + last_column) // 2)

    def _summarize(self) -> Iterator[str]:
        counts = self._counts
        total = sum(self._counts)
        if self.cursor is not None:
            end = min(self.cursor + self.stride(), self.count_stops())
            count = sum(counts[self.cursor : end])
            yield f"{self._format_range(self.cursor, end)}: {count} of {total} samples"
            yield format_percent(count / total)
            return
        for name, value in self._marks.items():
            yield f"{name} {self._format(value)}"
        if self._above_range:
            share = f"{self._above_range} of {total + self._above_range}"
            yield f"{share} beyond, up to {self._format(self._largest)}"
        if self._is_log:
            yield "log axis"
        yield f"{total} samples from {self._format_range(0, self.count_stops())}"
        fullest_bin = max(range(self.count_stops()), key=lambda index: counts[index])
        yield f"most in {self._format_range(fullest_bin, fullest_bin + 1)}"

    def _format_range(self, start: int, end: int) -> str:
        low = self._format(self._edges[start])
        high = self._format(self._edges[end])
        low_number, _, low_unit = low.partition(" ")
        return f"{low_number if high.endswith(f' {low_unit}') else low} to {high}"

    def _format(self, value: float) -> str:
        """Return a value with the unit in which it is 1 to 999; 0 has that of the axis."""
        return format_value(value, self._unit) if value else f"0 {self._unit}".rstrip()


def choose_bin_count(samples: int, width: int) -> int:
    """Return a number of bins for some samples that fills some cells.

    At first twice the square root of the number of samples (Velleman 1976, "Interactive computing
    for exploratory data analysis"), then as many bins of that width as fit.
    """
    bin_count = max(MIN_BINS, min(width // 2, MAX_BINS, 2 * math.isqrt(samples)))
    bin_width = width // bin_count
    return bin_count if bin_width < 1 else width // bin_width


def _choose_counts(largest: int, rows: int) -> dict[int, str]:
    """Return round counts by the row in which a bar of this count ends.

    At least two if a bar is that high, and at most one in two rows.
    """
    if rows < 4:
        return {rows - 1: str(largest)}
    scale = Scale(0.0, largest)
    max_counts = max(2, min(_MAX_COUNTS, rows // 2))
    candidates = [
        [count for count in scale.ticks(number) if count and count == int(count)]
        for number in range(max_counts + 1, 1, -1)
    ]
    counts = next((counts for counts in candidates if len(counts) > 1), None)
    if counts is None:
        counts = [*candidates[-1][:1], largest]
    return {math.ceil(count * rows / largest) - 1: f"{count:.0f}" for count in counts}


def describe_few(values: Sequence[float], unit: str) -> str:
    """Return a few samples as text: ``2 samples: 9.70 ms, 9.79 ms``."""
    count = format_quantity(len(values), "sample")
    return f"{count}: {', '.join(format_value(value, unit) for value in values)}"


def _write(line: list[str], is_cell_used: list[bool], text: str, start: int) -> bool:
    """Write a text into a line if its cells and one more at each side are free."""
    end = start + len(text)
    if start < 0 or end > len(line) or any(is_cell_used[max(0, start - 1) : end + 1]):
        return False
    line[start:end] = text
    is_cell_used[start:end] = [True] * len(text)
    return True
