"""The frame of a drawing: its place for data, its axes and their words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench.report.formats.page.markup import Markup, joined, tag
from spbench.report.scale import Scale, tick_words

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

    def at_x(self, value: float) -> float:
        """Return where a value lies from the left."""
        return self.left + self.x.fraction(value) * (self.width - self.left - self.right)

    def at_y(self, value: float) -> float:
        """Return where a value lies from the top."""
        return self.floor - self.y.fraction(value) * (self.floor - self.top)

    @property
    def floor(self) -> float:
        """Where the x axis lies from the top."""
        return self.height - self.bottom

    @property
    def end(self) -> float:
        """Where the data end at the right."""
        return self.width - self.right

    def drawing(self, title: str, *parts: str) -> Markup:
        """Return the drawing; ``title`` is what it shows, for those who cannot see it."""
        return drawing(title, self.width, self.height, *parts)

    def y_axis(self, name: str, *, whole: bool = False) -> Markup:
        """Return lines at round values, or whole ones, their words, and the name above them."""
        ticks = [tick for tick in ticks_of(self.y) if not whole or tick == round(tick)]
        return joined(
            [
                *(self._level(tick, word) for tick, word in _with_words(ticks, self.y.log)),
                label(self.left, self.top - 4, name, anchor="start", class_="name"),
            ]
        )

    def x_axis(self, name: str, words: Sequence[tuple[float, str]] | None = None) -> Markup:
        """Return the axis with its words, which are at round values unless told otherwise."""
        told = list(_with_words(ticks_of(self.x), self.x.log)) if words is None else words
        return joined(
            [
                tag("line", x1=self.left, x2=self.end, y1=self.floor, y2=self.floor, class_="axis"),
                *(label(self.at_x(tick), self.floor + 14, word) for tick, word in told),
                label((self.left + self.end) / 2, self.height - 6, name, class_="name"),
            ]
        )

    def across(self, value: float, word: str) -> Markup:
        """Return a dashed line at a value of y, with its word; none where it is out of sight."""
        if not self.y.low <= value <= self.y.high:
            return Markup("")
        at = self.at_y(value)
        return joined(
            [
                tag("line", x1=self.left, x2=self.end, y1=at, y2=at, class_="limit"),
                label(self.end, at - 4, word, anchor="end", class_="limited"),
            ]
        )

    def _level(self, value: float, word: str) -> Markup:
        at = self.at_y(value)
        line = tag("line", x1=self.left, x2=self.end, y1=at, y2=at, class_="grid")
        return joined([line, label(self.left - 6, at + 4, word, anchor="end")])


def drawing(title: str, width: float, height: float, *parts: str) -> Markup:
    """Return a drawing of a size, which grows and shrinks with the page."""
    box = f"0 0 {width:.0f} {height:.0f}"
    # Above its own size letters would be larger than those of the page.
    size = f"max-width:{width:.0f}px"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", style=size)


def label(
    x: float, y: float, text: str, *, anchor: str = "middle", class_: str | None = None
) -> Markup:
    """Return a word of a drawing."""
    place = {"x": x, "y": y}
    return tag("text", text, **place, text_anchor=anchor, class_=class_)


def ticks_of(scale: Scale) -> list[float]:
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
    return zip(ticks, tick_words(ticks, log), strict=True)
