"""The distribution of samples, as upright bars."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from textual.geometry import Offset

from spbench.record.number_formatting import format_number, format_percent, format_value, scale_of
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.fitting import cell_width, fit, join_fitting

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .#"
MAX_BAR_LINES = 16
"""Lines of the highest bar: higher ones show no more of a distribution."""


class HistogramChart(Chart):
    """Bars of the samples' counts, an axis with marks, and the figures in words."""

    HELP: ClassVar[str] = (
        "How the samples are spread: each bar counts those between two values.\n"
        "The axis runs from the smallest to the largest; ▲ marks median, p95 and p99.\n"
        "Left, right, home, end or a click choose a bar and read it out (◆); escape lets it go."
    )

    _edges: Sequence[float] = ()
    _counts: Sequence[int] = ()
    _unit = ""
    _marks: Mapping[str, float] = {}

    def update(
        self,
        edges: Sequence[float],
        counts: Sequence[int],
        unit: str,
        marks: Mapping[str, float] | None = None,
    ) -> None:
        """Show other samples.

        Args:
            edges: The bins' ends, ascending: one more than counts, or none at all.
            counts: How many samples lie in each bin.
            unit: The unit of the edges and marks.
            marks: Values to mark on the axis, by name, the most important first.

        Raises:
            ValueError: If the numbers of edges and counts do not match.
        """
        if len(edges) != len(counts) + 1 and (edges or counts):
            raise ValueError(f"{len(counts)} bins have {len(counts) + 1} edges, not {len(edges)}")
        scale = scale_of(edges, unit)
        self._edges = tuple(map(scale.convert, edges))
        self._counts = tuple(counts)
        self._unit = scale.unit
        self._marks = {name: scale.convert(value) for name, value in (marks or {}).items()}
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of bins."""
        return len(self._counts)

    def stride(self) -> int:
        """Return how many bins a cell stands for, at least."""
        return max(1, self.count_stops() // max(1, self.size.width))

    def find_stop(self, at: Offset) -> int | None:
        """Return the first bin of a cell's column."""
        return self._bins(at.x, self.size.width)[0] if self.count_stops() else None

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return bars, axis and words, as many of the three as there are lines for."""
        if not sum(self._counts):
            return [[(fit("no samples yet", width), "none")]]
        words: list[Piece] = [(join_fitting(self._phrases(), width), "words")]
        if height == 1:
            return [words]
        room = height - (2 if height > 2 else 1)
        rows = min(room, MAX_BAR_LINES)
        above: list[list[Piece]] = [[] for _ in range(room - rows)]
        axis = [self._axis(width)] if height > 2 else []
        return [*above, *self._bars(width, rows), *axis, words]

    def _bins(self, x: int, width: int) -> tuple[int, int]:
        """The bins of a column of cells: one, or a few where there are more bins than cells."""
        start = x * self.count_stops() // width
        return start, max(start + 1, (x + 1) * self.count_stops() // width)

    def _bars(self, width: int, rows: int) -> list[list[Piece]]:
        """The lines of the bars, from the top."""
        glyphs = _ASCII if self.ascii else _BLOCKS
        steps = len(glyphs) - 1
        most = max(self._counts)
        columns = []
        for x in range(width):
            start, end = self._bins(x, width)
            count = sum(self._counts[start:end]) / (end - start)
            # A bar with any sample is seen, however low it is.
            full = max(round(count * rows * steps / most), 1) if count else 0
            chosen = self.cursor is not None and start <= self.cursor < end
            columns.append((full, "mark" if chosen else "line"))
        return [
            [(glyphs[max(0, min(steps, full - row * steps))], style) for full, style in columns]
            for row in reversed(range(rows))
        ]

    def _axis(self, width: int) -> list[Piece]:
        """The smallest and the largest value, and marks between them where there is room."""
        low = format_number(self._edges[0])
        high = self._amount(self._edges[-1])
        line = ["-" if self.ascii else "─"] * width
        pointer = "^" if self.ascii else "▲"
        taken = [False] * width
        for text, at in ((low, 0), (high, width - cell_width(high))):
            _write(line, taken, text, at)
        for name, value in self._marks.items():
            at = max(0, min(self.count_stops() - 1, bisect_right(self._edges, value) - 1))
            place = self._middle(at, width)
            label = pointer + name
            if not _write(line, taken, label, place):
                _write(line, taken, name + pointer, place - cell_width(name))
        if self.cursor is not None:
            line[self._middle(self.cursor, width)] = "@" if self.ascii else "◆"
        return [("".join(line), "axis")]

    def _middle(self, at: int, width: int) -> int:
        """The middle of a bin's columns of cells."""
        first = -(-at * width // self.count_stops())
        last = ((at + 1) * width - 1) // self.count_stops()
        return min(last, (first + last) // 2)

    def _phrases(self) -> Iterator[str]:
        counts = self._counts
        total = sum(self._counts)
        if self.cursor is not None:
            end = min(self.cursor + self.stride(), self.count_stops())
            count = sum(counts[self.cursor : end])
            yield f"{self._range(self.cursor, end)}: {count} of {total} samples"
            yield format_percent(count / total)
            return
        for name, value in self._marks.items():
            yield f"{name} {self._amount(value)}"
        yield f"{total} samples from {self._range(0, self.count_stops())}"
        most = max(range(self.count_stops()), key=lambda at: counts[at])
        yield f"most in {self._range(most, most + 1)}"

    def _range(self, start: int, end: int) -> str:
        low = self._edges[start]
        high = self._edges[end]
        return f"{format_number(low)} to {format_number(high)} {self._unit}".rstrip()

    def _amount(self, value: float) -> str:
        return format_value(value, self._unit)


def _write(line: list[str], taken: list[bool], text: str, at: int) -> bool:
    """Write a text into a line, if all its cells and one at each side are free."""
    end = at + len(text)
    if at < 0 or end > len(line) or any(taken[max(0, at - 1) : end + 1]):
        return False
    line[at:end] = text
    taken[at:end] = [True] * len(text)
    return True
