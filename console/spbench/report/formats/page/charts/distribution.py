"""Histograms: one with percentiles and reference, and a small one for a table."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from spbench.record.number_formatting import choose_unit, format_value
from spbench.report.formats.page.charts.frame import Frame, svg_drawing, svg_text
from spbench.report.formats.page.markup import Markup, join_markup, svg_number, tag
from spbench.report.scale import Scale
from spbench.stats.histogram import find_axis_end
from spbench.stats.sorted_samples import SortedSamples
from spbench.stats.summary import percentile

LEAST_BINS = 10
MOST_BINS = 48
SMALL_BINS = 24
HEADROOM = 1.05
"""The height of the axis as a multiple of that of the highest bin."""
_HEIGHT = 150.0
_TOP = 16.0
_ROW = 14.0
"""The height without labels, that of the axis' name, and that of each label above it."""
_LETTER = 6.5
"""The largest width of a label's character."""
_SMALL = (96.0, 20.0)
_REFERENCE = "reference"


def draw_histogram(
    samples: Sequence[float], base_unit: str, middle: float, reference: float | None
) -> Markup:
    """Return a histogram of samples with their median, p95 and reference.

    Args:
        samples: The samples, at least one.
        base_unit: Their unit.
        middle: Their median, or that of the medians of several repeats.
        reference: Their reference; None if they have none.
    """
    # The unit fits most samples, not the slowest one.
    unit = choose_unit([middle], base_unit)
    ordered = sorted(map(unit.convert, samples))
    limit = None if reference is None else unit.convert(reference)
    low = ordered[0]
    high = find_axis_end(SortedSamples(ordered))
    if limit is not None and low / 2 <= limit <= high * 2:
        low = min(low, limit)
        high = max(high, limit)
    bins = max(LEAST_BINS, min(MOST_BINS, round(3 * math.sqrt(len(ordered)))))
    counts, above = _counts(ordered, low, high, bins)
    marks = [("median", unit.convert(middle)), ("p95", percentile(ordered, 0.95))]
    marks += [] if limit is None else [(_REFERENCE, limit)]
    rows = len(marks) + bool(above)
    frame = Frame(
        Scale(low, high),
        Scale(0.0, HEADROOM * max(counts)),
        height=_HEIGHT + _ROW * rows,
        top=_TOP + _ROW * rows,
    )
    labels = _arrange(frame, marks, unit.unit)
    if above:
        more = f"{above} beyond, up to {format_value(ordered[-1], unit.unit)} →"
        labels.insert(0, _Label(more, frame.data_right, is_left=True, class_="name"))
    return frame.draw(
        f"Distribution of {len(ordered)} samples in {unit.unit}",
        # The name is left of the axis, because a line may be on the axis.
        frame.draw_y_axis("", integers_only=True),
        svg_text(frame.left - 6, frame.top - 4, "samples", anchor="end", class_="name"),
        frame.draw_x_axis(unit.unit),
        tag("path", d=_bars(frame, counts), class_="bars"),
        *(row_label.draw(frame, row) for row, row_label in enumerate(labels)),
    )


def draw_small_histogram(samples: Sequence[float]) -> Markup:
    """Return a histogram without axes, or nothing with fewer than two samples."""
    if len(samples) < 2:
        return Markup("")
    ordered = sorted(samples)
    width, height = _SMALL
    counts, _ = _counts(ordered, ordered[0], find_axis_end(SortedSamples(ordered)), SMALL_BINS)
    step = width / SMALL_BINS
    largest = max(counts)
    # Adjacent bins of equal height are one rectangle, which keeps a table of 1000 rows small.
    path = ""
    first = 0
    for count, group in groupby(counts):
        bins = len(list(group))
        if count:
            x = svg_number(first * step)
            rectangle_width = svg_number(bins * step)
            rectangle_height = svg_number(max(1.0, height * count / largest))
            path += f"M{x} {svg_number(height)}v-{rectangle_height}"
            path += f"h{rectangle_width}v{rectangle_height}z"
        first += bins
    shape = tag("path", d=path, class_="bars")
    return svg_drawing(f"{len(ordered)} samples", width, height, shape)


def _counts(ordered: Sequence[float], low: float, high: float, bins: int) -> tuple[list[int], int]:
    """Return the number of samples in each bin, and beyond the last bin."""
    counts = [0] * bins
    width = (high / bins - low / bins) or 1.0
    in_range = bisect_right(ordered, high)
    for value in ordered[:in_range]:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return counts, len(ordered) - in_range


def _bars(frame: Frame, counts: Sequence[int]) -> str:
    step = (frame.data_right - frame.left) / len(counts)
    edges = [svg_number(frame.left + index * step) for index in range(len(counts) + 1)]
    bottom = svg_number(frame.data_bottom)
    return "".join(
        f"M{start} {bottom}V{svg_number(frame.y_position(count))}H{end}V{bottom}z"
        for count, (start, end) in zip(counts, pairwise(edges), strict=True)
        if count
    )


@dataclass(frozen=True, slots=True)
class _Label:
    """A label in its own row above the bars.

    Attributes:
        is_left: Whether the text ends at ``x``, instead of starting there.
        line: The class of the line from the label down to the axis; None for no line.
    """

    text: str
    x: float
    is_left: bool
    class_: str | None
    line: str | None = None

    def draw(self, frame: Frame, row: int) -> Markup:
        """Return the label in a row, counted from the top, and its line."""
        y = 11.0 + _ROW * row
        gap = 5 if self.line else 0
        text = svg_text(
            self.x + (-gap if self.is_left else gap),
            y,
            self.text,
            anchor="end" if self.is_left else "start",
            class_=self.class_,
        )
        if self.line is None:
            return text
        line = tag("line", x1=self.x, x2=self.x, y1=y - 9, y2=frame.data_bottom, class_=self.line)
        return join_markup([line, text])


def _arrange(frame: Frame, marks: Iterable[tuple[str, float]], unit: str) -> list[_Label]:
    """Return a label for each named value, in rows so that lines cross no labels.

    Values beyond the axis have an arrow at its edge instead of a line.
    """
    edges: list[_Label] = []
    left: list[_Label] = []
    right: list[_Label] = []
    end = frame.width
    for name, value in sorted(marks, key=lambda mark: -mark[1]):
        text = f"{name} {format_value(value, unit)}"
        class_, line = ("limited", "limit") if name == _REFERENCE else (None, "mark")
        if value < frame.x.low:
            edges.append(_Label(f"← {text}", frame.left, is_left=False, class_=class_))
            continue
        if value > frame.x.high:
            edges.append(_Label(f"{text} →", frame.data_right, is_left=True, class_=class_))
            continue
        x = frame.x_position(value)
        is_left = x + 5 + _LETTER * len(text) > end
        if is_left:
            end = x
        (left if is_left else right).append(_Label(text, x, is_left, class_, line))
    return [*edges, *left, *reversed(right)]
