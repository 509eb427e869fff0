"""Shares of a whole as bars below each other: each part a letter beside its colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from string import ascii_uppercase

from textual.geometry import Size

from spbench.tui.widgets.chart import SERIES_COLOURS, Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.fitting import cell_width, fit

REST_GLYPH = "·"
_ASCII_REST = "."
_WIDEST_LABEL = 0.4
"""The part of a line that labels take at most."""
_GAP = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """A row: its label, and of each part a figure of 0 or more, 1 being the whole."""

    label: str
    parts: Sequence[float]


class StackedBars(Chart, can_focus=False):
    """Bars of the same parts; what is left of the whole is dotted, large parts have their figure.

    Further parts than there are colours are drawn hollow, so that two of one colour differ.
    """

    _names: Sequence[str] = ()
    _letters: Sequence[str] = ()
    _bars: Sequence[Bar] = ()
    _rest = ""

    def update(self, names: Sequence[str], bars: Sequence[Bar], rest: str = "other") -> None:
        """Show other bars.

        Args:
            names: The parts' names.
            bars: The rows.
            rest: What is left of the whole, by its name in the legend.

        Raises:
            ValueError: A row has not as many parts as there are names.
        """
        if any(len(bar.parts) != len(names) for bar in bars):
            raise ValueError(f"a bar has not {len(names)} parts")
        self._names = tuple(names)
        self._letters = assign_letters(names)
        self._bars = tuple(bars)
        self._rest = rest
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines of all bars and of the legend."""
        return len(self._bars) + len(self._legend(width))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return a line a bar, and the legend below them."""
        return [*(self._line(bar, width) for bar in self._bars), *self._legend(width)]

    def _margin(self, width: int) -> int:
        widest = max((cell_width(bar.label) for bar in self._bars), default=0)
        return min(widest, int(width * _WIDEST_LABEL)) + _GAP

    def _line(self, bar: Bar, width: int) -> list[Piece]:
        margin = self._margin(width)
        label = fit(bar.label, margin - _GAP) + " " * _GAP
        return [(label, "axis"), *self._pieces(bar, max(1, width - margin))]

    def _pieces(self, bar: Bar, width: int) -> Iterator[Piece]:
        """Each part from where the ones before it end, so that roundings do not add up."""
        whole = max(1.0, sum(bar.parts))
        ends = [round(width * end / whole) for end in accumulate(bar.parts, initial=0.0)]
        for at, (begin, end) in enumerate(pairwise(ends)):
            yield _labelled(self._letters[at], bar.parts[at], end - begin), _style(at)
        yield (_ASCII_REST if self.ascii else REST_GLYPH) * (width - ends[-1]), "none"

    def _legend(self, width: int) -> list[list[Piece]]:
        """The parts that any bar has, in as many lines as they need."""
        rest = _ASCII_REST if self.ascii else REST_GLYPH
        signs = [
            (sign, name, _style(at))
            for at, (sign, name) in enumerate(zip(self._letters, self._names, strict=True))
            if any(bar.parts[at] > 0 for bar in self._bars)
        ]
        lines: list[list[Piece]] = []
        room = 0
        for sign, name, style in (*signs, (rest, self._rest, "none")):
            size = 2 + cell_width(name) + _GAP
            if size - _GAP > room or not lines:
                lines.append([])
                room = width
            lines[-1] += [(sign, style), (f" {name}" + " " * _GAP, "words")]
            room -= size
        return lines


def assign_letters(names: Sequence[str]) -> tuple[str, ...]:
    """Return a letter for each name: its first that no other has, else any."""
    taken: list[str] = []
    for name in names:
        free = (letter for letter in (*name, *ascii_uppercase) if letter not in taken)
        taken.append(next(free, "?"))
    return tuple(taken)


def _style(part: int) -> str:
    return f"series-{part % SERIES_COLOURS}" + (" filled" if part < SERIES_COLOURS else "")


def _labelled(sign: str, part: float, width: int) -> str:
    """So many letters with the part's figure among them, where there is room for it."""
    figure = f" {100 * part:.0f} % "
    return (figure if width >= len(figure) + 2 else "").center(width, sign)
