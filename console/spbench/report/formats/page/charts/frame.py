"""The frame of a chart: its area for data, its axes and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench.report.formats.page.markup import Markup, join_markup, tag
from spbench.report.scale import Scale, format_ticks

MAX_TICKS = 6


@dataclass(frozen=True, slots=True)
class Frame:
    """The area for data and its scales, in units of the SVG image.

    Values of y grow upwards, but SVG positions grow downwards.
    """

    x: Scale
    y: Scale
    width: float = 620.0
    height: float = 230.0
    left: float = 62.0
    right: float = 26.0
    top: float = 14.0
    bottom: float = 38.0

    def x_position(self, value: float) -> float:
        """Return the distance of a value from the left edge."""
        return self.left + self.x.fraction(value) * (self.width - self.left - self.right)

    def y_position(self, value: float) -> float:
        """Return the distance of a value from the top edge."""
        return self.data_bottom - self.y.fraction(value) * (self.data_bottom - self.top)

    @property
    def data_bottom(self) -> float:
        """The distance of the x axis from the top edge."""
        return self.height - self.bottom

    @property
    def data_right(self) -> float:
        """The distance of the data's right end from the left edge."""
        return self.width - self.right

    def draw(self, title: str, *parts: str) -> Markup:
        """Return the SVG image; screen readers read its ``title``."""
        return svg_drawing(title, self.width, self.height, *parts)

    def draw_y_axis(self, name: str, *, integers_only: bool = False) -> Markup:
        """Return grid lines at round values, or at integers, with labels and the name."""
        ticks = [tick for tick in choose_ticks(self.y) if not integers_only or tick == round(tick)]
        return join_markup(
            [
                *(
                    self._draw_grid_line(tick, text)
                    for tick, text in _label_ticks(ticks, self.y.log)
                ),
                svg_text(self.left, self.top - 4, name, anchor="start", class_="name"),
            ]
        )

    def draw_x_axis(self, name: str, labels: Sequence[tuple[float, str]] | None = None) -> Markup:
        """Return the axis with its labels, by default at round values."""
        if labels is None:
            labels = list(_label_ticks(choose_ticks(self.x), self.x.log))
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
                    svg_text(self.x_position(tick), self.data_bottom + 14, label)
                    for tick, label in labels
                ),
                svg_text((self.left + self.data_right) / 2, self.height - 6, name, class_="name"),
            ]
        )

    def _draw_grid_line(self, y_value: float, text: str) -> Markup:
        y = self.y_position(y_value)
        line = tag("line", x1=self.left, x2=self.data_right, y1=y, y2=y, class_="grid")
        return join_markup([line, svg_text(self.left - 6, y + 4, text, anchor="end")])


def svg_drawing(title: str, width: float, height: float, *parts: str) -> Markup:
    """Return an SVG image that scales with the page."""
    view_box = f"0 0 {width:.0f} {height:.0f}"
    # Above this width, its text would be larger than that of the page.
    max_width_style = f"max-width:{width:.0f}px"
    return tag(
        "svg", tag("title", title), *parts, viewBox=view_box, role="img", style=max_width_style
    )


def svg_text(
    x: float, y: float, text: str, *, anchor: str = "middle", class_: str | None = None
) -> Markup:
    """Return a text of an SVG image."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def choose_ticks(scale: Scale) -> list[float]:
    """Return the round values at the ticks of a scale.

    On a short logarithmic scale these are 1, 2 and 5 times each power of ten.
    """
    if scale.log and scale.low > 0 and scale.high / scale.low < 1000:
        ticks = list(_split_decades(scale.low, scale.high))
        if len(ticks) > MAX_TICKS:
            ticks = [tick for tick in ticks if f"{tick:e}"[0] == "1"]
        if len(ticks) > 1:
            return ticks
    return scale.ticks(MAX_TICKS)


def _split_decades(low: float, high: float) -> Iterator[float]:
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for leading_digit in (1, 2, 5):
            round_value = float(f"{leading_digit}e{power}")
            if low <= round_value <= high:
                yield round_value


def _label_ticks(ticks: Sequence[float], log: bool) -> Iterator[tuple[float, str]]:
    return zip(ticks, format_ticks(ticks, log), strict=True)
