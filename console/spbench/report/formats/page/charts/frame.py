"""The frame of a drawing: its place for data, its axes and their words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench.report.formats.page.markup import Markup, join_markup, tag
from spbench.report.scale import Scale, format_ticks

MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Frame:
    """Where data are drawn, in units of the drawing; y grows upwards, as in plots."""

    x: Scale
    y: Scale
    width: float = 620.0
    height: float = 230.0
    left: float = 62.0
    right: float = 26.0
    top: float = 14.0
    bottom: float = 38.0

    def x_position(self, value: float) -> float:
        """Return where a value lies from the left."""
        return self.left + self.x.fraction(value) * (self.width - self.left - self.right)

    def y_position(self, value: float) -> float:
        """Return where a value lies from the top."""
        return self.data_bottom - self.y.fraction(value) * (self.data_bottom - self.top)

    @property
    def data_bottom(self) -> float:
        """Where the x axis lies from the top."""
        return self.height - self.bottom

    @property
    def data_right(self) -> float:
        """Where the data end at the right."""
        return self.width - self.right

    def draw(self, title: str, *parts: str) -> Markup:
        """Return the drawing; ``title`` is what it shows, for those who cannot see it."""
        return svg_drawing(title, self.width, self.height, *parts)

    def draw_y_axis(self, name: str, *, whole: bool = False) -> Markup:
        """Return lines at round values, or whole ones, their words, and the name above them."""
        ticks = [tick for tick in choose_ticks(self.y) if not whole or tick == round(tick)]
        return join_markup(
            [
                *(self._level(tick, word) for tick, word in _with_words(ticks, self.y.log)),
                svg_text(self.left, self.top - 4, name, anchor="start", class_="name"),
            ]
        )

    def draw_x_axis(self, name: str, words: Sequence[tuple[float, str]] | None = None) -> Markup:
        """Return the axis with its words, which are at round values unless told otherwise."""
        told = list(_with_words(choose_ticks(self.x), self.x.log)) if words is None else words
        return join_markup(
            [
                tag(
                    "line",
                    x1=self.left,
                    x2=self.data_right,
                    y1=self.data_bottom,
                    y2=self.data_bottom,
                    class_="axis",
                ),
                *(
                    svg_text(self.x_position(tick), self.data_bottom + 14, word)
                    for tick, word in told
                ),
                svg_text((self.left + self.data_right) / 2, self.height - 6, name, class_="name"),
            ]
        )

    def across(self, value: float, word: str) -> Markup:
        """Return a dashed line at a value of y, with its word; none where it is out of sight."""
        if not self.y.low <= value <= self.y.high:
            return Markup("")
        at = self.y_position(value)
        return join_markup(
            [
                tag("line", x1=self.left, x2=self.data_right, y1=at, y2=at, class_="limit"),
                svg_text(self.data_right, at - 4, word, anchor="end", class_="limited"),
            ]
        )

    def _level(self, value: float, word: str) -> Markup:
        at = self.y_position(value)
        line = tag("line", x1=self.left, x2=self.data_right, y1=at, y2=at, class_="grid")
        return join_markup([line, svg_text(self.left - 6, at + 4, word, anchor="end")])


def svg_drawing(title: str, width: float, height: float, *parts: str) -> Markup:
    """Return a drawing of a size, which grows and shrinks with the page."""
    box = f"0 0 {width:.0f} {height:.0f}"
    # Above its own size letters would be larger than those of the page.
    size = f"max-width:{width:.0f}px"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", style=size)


def svg_text(
    x: float, y: float, text: str, *, anchor: str = "middle", class_: str | None = None
) -> Markup:
    """Return a word of a drawing."""
    place = {"x": x, "y": y}
    return tag("text", text, **place, text_anchor=anchor, class_=class_)


def choose_ticks(scale: Scale) -> list[float]:
    """Return round values; on a short logarithmic scale 1, 2 and 5 of each power of ten."""
    if scale.log and scale.low > 0 and scale.high / scale.low < 1000:
        found = list(_parts_of_decades(scale.low, scale.high))
        if len(found) > MOST_TICKS:
            found = [tick for tick in found if f"{tick:e}"[0] == "1"]
        if len(found) > 1:
            return found
    return scale.ticks(MOST_TICKS)


def _parts_of_decades(low: float, high: float) -> Iterator[float]:
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for part in (1, 2, 5):
            value = float(f"{part}e{power}")
            if low <= value <= high:
                yield value


def _with_words(ticks: Sequence[float], log: bool) -> Iterator[tuple[float, str]]:
    return zip(ticks, format_ticks(ticks, log), strict=True)
