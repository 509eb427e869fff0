"""Distributions: a histogram with its percentiles and limit, and one so small that a row has it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise

from spbench.record.number_formatting import number
from spbench.record.statistics import percentile
from spbench.report.formats.page.charts.frame import Frame, drawing, label
from spbench.report.formats.page.markup import Markup, coordinate, joined, tag
from spbench.report.scale import Scale

LEAST_BINS, MOST_BINS, SMALL_BINS = 10, 48, 24
TAIL = 3.0
"""Beyond p90 so many times the extent from p10 to p90 is drawn, so that one slow sample leaves the
others their width."""
HEADROOM = 1.3
"""The height above the highest bin, in which the marks have their words."""
_SMALL = (96.0, 20.0)


def histogram(samples: Sequence[float], unit: str, limit: float | None) -> Markup:
    """Return a histogram of samples, which are not empty, with their median, p95 and limit."""
    ordered = sorted(samples)
    low, high = ordered[0], _drawn_end(ordered)
    if limit is not None and low / 2 <= limit <= high * 2:
        low, high = min(low, limit), max(high, limit)
    bins = max(LEAST_BINS, min(MOST_BINS, round(3 * math.sqrt(len(ordered)))))
    counts, beyond = _counts(ordered, low, high, bins)
    frame = Frame(Scale(low, high), Scale(0.0, HEADROOM * max(counts)), height=170.0)
    marks = [("median", percentile(ordered, 0.5)), ("p95", percentile(ordered, 0.95))]
    parts = [
        frame.y_axis("samples", whole=True),
        frame.x_axis(unit),
        tag("path", d=_bars(frame, counts), class_="bars"),
        *(_mark(frame, value, name, at) for at, (name, value) in enumerate(marks)),
    ]
    if limit is not None and low <= limit <= high:
        parts.append(_mark(frame, limit, "limit", 2, "limit"))
    if beyond:
        more = f"{beyond} beyond, up to {number(ordered[-1])}"
        parts.append(label(frame.end, frame.floor - 6, more, anchor="end", class_="limited"))
    return frame.drawing(f"Distribution of {len(ordered)} samples in {unit}", *parts)


def small_histogram(samples: Sequence[float]) -> Markup:
    """Return the shape of a distribution without axes; nothing of fewer than two samples."""
    if len(samples) < 2:
        return Markup("")
    ordered = sorted(samples)
    width, height = _SMALL
    counts, _ = _counts(ordered, ordered[0], _drawn_end(ordered), SMALL_BINS)
    step, most = width / SMALL_BINS, max(counts)
    # Bins side by side that are equally high are one piece, which makes a thousand rows short.
    path, at = "", 0
    for count, same in groupby(counts):
        bins = len(list(same))
        if count:
            tall = max(1.0, height * count / most)
            start, wide = coordinate(at * step), coordinate(bins * step)
            path += f"M{start} {coordinate(height)}v-{coordinate(tall)}h{wide}v{coordinate(tall)}z"
        at += bins
    shape = tag("path", d=path, class_="bars")
    return drawing(f"{len(ordered)} samples", width, height, shape)


def _drawn_end(ordered: Sequence[float]) -> float:
    low, high = percentile(ordered, 0.1), percentile(ordered, 0.9)
    return min(ordered[-1], high + TAIL * (high - low)) if high > low else ordered[-1]


def _counts(ordered: Sequence[float], low: float, high: float, bins: int) -> tuple[list[int], int]:
    """Return how many samples lie in each bin, and how many beyond the last."""
    counts, width = [0] * bins, (high / bins - low / bins) or 1.0
    within = bisect_right(ordered, high)
    for value in ordered[:within]:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return counts, len(ordered) - within


def _bars(frame: Frame, counts: Sequence[int]) -> str:
    step = (frame.end - frame.left) / len(counts)
    edges = [frame.left + at * step for at in range(len(counts) + 1)]
    floor = coordinate(frame.floor)
    return "".join(
        f"M{coordinate(start)} {floor}V{coordinate(frame.at_y(count))}H{coordinate(end)}V{floor}z"
        for count, (start, end) in zip(counts, pairwise(edges), strict=True)
        if count
    )


def _mark(frame: Frame, value: float, name: str, row: int, class_: str = "mark") -> Markup:
    """Return an upright line at a value, with its name beside it, each on a line of its own."""
    at = frame.at_x(min(value, frame.x.high))
    left = at > (frame.left + frame.end) / 2
    words = f"{name} {number(value)}"
    return joined(
        [
            tag("line", x1=at, x2=at, y1=frame.top, y2=frame.floor, class_=class_),
            label(
                at + (-5 if left else 5),
                frame.top + 10 + 14 * row,
                words,
                anchor="end" if left else "start",
                class_="limited" if class_ == "limit" else None,
            ),
        ]
    )
