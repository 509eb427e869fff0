"""Horizontal bars of shares: each part has a colour, or else a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from textual.geometry import Size

from spbench.tui.widgets.chart import SERIES_COLOURS, Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.text import cell_width, fit

REST_GLYPH = "·"
_LEGEND_GLYPH = "■"
_PATTERNS = "▒░▓▚▞▖┼"
_ASCII_PATTERNS = "#=+%ox*"
"""Fills of parts that no colour distinguishes."""
_ASCII_REST = "."
_MAX_LABEL_SHARE = 0.4
"""Largest share of a line that labels may take."""
_GAP = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the chart.

    Attributes:
        label: The text in front of it.
        parts: The share of each part: at least 0, and 1 is the whole bar.
        remainder: The text in the remainder; None: its percentage.
    """

    label: str
    parts: Sequence[float]
    remainder: str | None = None


class StackedBars(Chart, can_focus=False):
    """Bars with the same parts, a dotted remainder, and percentages in wide parts.

    If there are more parts than colours, the further parts have a pattern instead of a solid
    colour, so that two parts with the same colour differ. Without colours all have patterns.
    """

    _names: Sequence[str] = ()
    _bars: Sequence[Bar] = ()
    _remainder = ""

    def update(self, names: Sequence[str], bars: Sequence[Bar], remainder: str = "other") -> None:
        """Show other bars.

        Args:
            names: The names of the parts.
            bars: The bars, from the top.
            remainder: The name of the remainder in the legend.

        Raises:
            ValueError: The number of parts of a bar is not that of the names.
        """
        if any(len(bar.parts) != len(names) for bar in bars):
            raise ValueError(f"a bar has not {len(names)} parts")
        self._names = tuple(names)
        self._bars = tuple(bars)
        self._remainder = remainder
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines of all bars and the legend."""
        return len(self._bars) + len(self._render_legend(width))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return one line per bar, and the legend below them."""
        bars = (self._render_bar(bar, width) for bar in self._bars)
        return [*bars, *self._render_legend(width)]

    def _measure_margin(self, width: int) -> int:
        widest = max((cell_width(bar.label) for bar in self._bars), default=0)
        return min(widest, int(width * _MAX_LABEL_SHARE)) + _GAP

    def _render_bar(self, bar: Bar, width: int) -> list[Piece]:
        margin = self._measure_margin(width)
        label = fit(bar.label, margin - _GAP) + " " * _GAP
        return [(label, "axis"), *self._render_parts(bar, max(1, width - margin))]

    def _render_parts(self, bar: Bar, width: int) -> Iterator[Piece]:
        total = max(1.0, sum(bar.parts))
        # Rounding the ends, not the widths, keeps rounding errors from adding up.
        ends = [round(width * end / total) for end in accumulate(bar.parts, initial=0.0)]
        for part, (start, end) in enumerate(pairwise(ends)):
            fill = self._choose_pattern(part) if self._needs_pattern(part) else " "
            text = _fill_part(fill, bar.parts[part], end - start)
            yield text, _choose_style(part)
        glyph = _ASCII_REST if self.ascii else REST_GLYPH
        remaining_cells = width - ends[-1]
        if bar.remainder is None:
            text = _fill_part(glyph, max(0.0, 1.0 - sum(bar.parts)), remaining_cells)
        else:
            text = _fill(glyph, bar.remainder, remaining_cells)
        yield text, "none"

    def _choose_pattern(self, part: int) -> str:
        patterns = _ASCII_PATTERNS if self.ascii else _PATTERNS
        return patterns[part % len(patterns)]

    def _needs_pattern(self, part: int) -> bool:
        """Return whether the colour of a part does not distinguish it."""
        return part >= SERIES_COLOURS or self.ascii or self.app.no_color

    def _choose_legend(self, part: int) -> Piece:
        """Return the sign of a part in the legend, in the colour of the bars."""
        if self._needs_pattern(part):
            return self._choose_pattern(part), _choose_style(part)
        return _LEGEND_GLYPH, f"series-{part}"

    def _render_legend(self, width: int) -> list[list[Piece]]:
        """Return the lines that name the parts of the bars and the remainder."""
        remainder = _ASCII_REST if self.ascii else REST_GLYPH
        used_parts = [
            (*self._choose_legend(part), name)
            for part, name in enumerate(self._names)
            if any(bar.parts[part] > 0 for bar in self._bars)
        ]
        lines: list[list[Piece]] = []
        available_width = 0
        for glyph, style, name in (*used_parts, (remainder, "none", self._remainder)):
            label_width = 2 + cell_width(name) + _GAP
            if label_width - _GAP > available_width or not lines:
                lines.append([])
                available_width = width
            lines[-1] += [(glyph, style), (f" {name}" + " " * _GAP, "text")]
            available_width -= label_width
        return lines


def _choose_style(part: int) -> str:
    return f"series-{part % SERIES_COLOURS}" + (" filled" if part < SERIES_COLOURS else "")


def _fill_part(fill: str, share: float, width: int) -> str:
    """Return ``width`` equal cells, with the percentage in the middle if it fits."""
    return _fill(fill, f"{100 * share:.0f} %", width)


def _fill(fill: str, text: str, width: int) -> str:
    """Return ``width`` equal cells, with a text in the middle if it fits."""
    inner = f" {text} " if text else ""
    return (inner if width >= len(inner) + 2 else "").center(width, fill)
