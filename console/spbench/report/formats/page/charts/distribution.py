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

MIN_BINS = 10
MAX_BINS = 48
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
    samples: Sequence[float], base_unit: str, median: float, reference: float | None
) -> Markup:
    """Return a histogram of samples with their median, p95 and reference.

    Args:
        samples: The samples, at least one.
        base_unit: Their unit.
        median: Their median, or that of the medians of several repeats.
        reference: Their reference; None if they have none.
    """
    # The unit fits most samples, not the slowest one.
    unit = choose_unit([median], base_unit)
    sorted_samples = sorted(map(unit.convert, samples))
    converted_reference = None if reference is None else unit.convert(reference)
    axis_low = sorted_samples[0]
    axis_high = find_axis_end(SortedSamples(sorted_samples))
    if converted_reference is not None and axis_low / 2 <= converted_reference <= axis_high * 2:
        axis_low = min(axis_low, converted_reference)
        axis_high = max(axis_high, converted_reference)
    bin_count = max(MIN_BINS, min(MAX_BINS, round(3 * math.sqrt(len(sorted_samples)))))
    count_by_bin, above_count = _count_samples_by_bin(
        sorted_samples, axis_low, axis_high, bin_count
    )
    named_values = [("median", unit.convert(median)), ("p95", percentile(sorted_samples, 0.95))]
    named_values += [] if converted_reference is None else [(_REFERENCE, converted_reference)]
    label_rows = len(named_values) + bool(above_count)
    frame = Frame(
        Scale(axis_low, axis_high),
        Scale(0.0, HEADROOM * max(count_by_bin)),
        height=_HEIGHT + _ROW * label_rows,
        top=_TOP + _ROW * label_rows,
    )
    labels = _arrange_labels(frame, named_values, unit.unit)
    if above_count:
        beyond_text = f"{above_count} beyond, up to {format_value(sorted_samples[-1], unit.unit)} →"
        labels.insert(0, _Label(beyond_text, frame.data_right, is_left=True, class_="name"))
    return frame.draw(
        f"Distribution of {len(sorted_samples)} samples in {unit.unit}",
        # The name is left of the axis, because a line may be on the axis.
        frame.draw_y_axis("", integers_only=True),
        svg_text(frame.left - 6, frame.top - 4, "samples", anchor="end", class_="name"),
        frame.draw_x_axis(unit.unit),
        tag("path", d=_make_bars_path(frame, count_by_bin), class_="bars"),
        *(row_label.draw(frame, row) for row, row_label in enumerate(labels)),
    )


def draw_small_histogram(samples: Sequence[float]) -> Markup:
    """Return a histogram without axes, or nothing with fewer than two samples."""
    if len(samples) < 2:
        return Markup("")
    sorted_samples = sorted(samples)
    width, height = _SMALL
    count_by_bin, _ = _count_samples_by_bin(
        sorted_samples, sorted_samples[0], find_axis_end(SortedSamples(sorted_samples)), SMALL_BINS
    )
    bin_width = width / SMALL_BINS
    largest_count = max(count_by_bin)
    # Adjacent bins of equal height are one rectangle, which keeps a table of 1000 rows small.
    path_data = ""
    first_bin = 0
    for count, equal_counts in groupby(count_by_bin):
        equal_bins = len(list(equal_counts))
        if count:
            x = svg_number(first_bin * bin_width)
            rectangle_width = svg_number(equal_bins * bin_width)
            rectangle_height = svg_number(max(1.0, height * count / largest_count))
            path_data += f"M{x} {svg_number(height)}v-{rectangle_height}"
            path_data += f"h{rectangle_width}v{rectangle_height}z"
        first_bin += equal_bins
    shape = tag("path", d=path_data, class_="bars")
    return svg_drawing(f"{len(sorted_samples)} samples", width, height, shape)


def _count_samples_by_bin(
    sorted_samples: Sequence[float], low: float, high: float, bin_count: int
) -> tuple[list[int], int]:
    """Return the number of samples in each bin, and beyond the last bin."""
    count_by_bin = [0] * bin_count
    bin_width = (high / bin_count - low / bin_count) or 1.0
    in_range_count = bisect_right(sorted_samples, high)
    for sample in sorted_samples[:in_range_count]:
        count_by_bin[min(bin_count - 1, int((sample - low) / bin_width))] += 1
    return count_by_bin, len(sorted_samples) - in_range_count


def _make_bars_path(frame: Frame, count_by_bin: Sequence[int]) -> str:
    bin_width = (frame.data_right - frame.left) / len(count_by_bin)
    edges = [svg_number(frame.left + index * bin_width) for index in range(len(count_by_bin) + 1)]
    y_bottom = svg_number(frame.data_bottom)
    return "".join(
        f"M{x_start} {y_bottom}V{svg_number(frame.y_position(count))}H{x_end}V{y_bottom}z"
        for count, (x_start, x_end) in zip(count_by_bin, pairwise(edges), strict=True)
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


def _arrange_labels(
    frame: Frame, named_values: Iterable[tuple[str, float]], unit: str
) -> list[_Label]:
    """Return a label for each named value, in rows so that lines cross no labels.

    Values beyond the axis have an arrow at its edge instead of a line.
    """
    beyond_axis: list[_Label] = []
    ending_at_line: list[_Label] = []
    starting_at_line: list[_Label] = []
    x_limit = frame.width
    for name, value in sorted(named_values, key=lambda name_and_value: -name_and_value[1]):
        text = f"{name} {format_value(value, unit)}"
        class_, line = ("limited", "limit") if name == _REFERENCE else (None, "mark")
        if value < frame.x.low:
            beyond_axis.append(_Label(f"← {text}", frame.left, is_left=False, class_=class_))
            continue
        if value > frame.x.high:
            beyond_axis.append(_Label(f"{text} →", frame.data_right, is_left=True, class_=class_))
            continue
        x = frame.x_position(value)
        is_left = x + 5 + _LETTER * len(text) > x_limit
        if is_left:
            x_limit = x
        (ending_at_line if is_left else starting_at_line).append(
            _Label(text, x, is_left, class_, line)
        )
    return [*beyond_axis, *ending_at_line, *reversed(starting_at_line)]
