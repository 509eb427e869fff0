"""The points of series as a plot takes them, and as words for those who cannot see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spbench.record.metric_names import format_folded_name
from spbench.record.number_formatting import DisplayUnit, choose_unit, format_value
from spbench.report.series import Point, Series
from spbench.tui.cells import format_moment
from spbench.tui.widgets.plot import PlotPoint, PlotSeries
from spbench_core.events.statuses import CaseStatus
from spbench_core.quantities import format_quantity

_MOST_TOLD = 12
"""Points of a series that are told in words."""


def choose_plot_unit(series: Sequence[Series]) -> DisplayUnit:
    """Return the unit in which series of one metric are plotted."""
    return choose_unit((point.y for one in series for point in one.points), series[0].unit)


def format_axis_title(series: Series, scale: DisplayUnit) -> str:
    """Return ``time in us``."""
    name = format_folded_name(series.metric, series.unit)
    return name + (f" in {scale.unit}" if scale.unit else "")


def build_runs_points(series: Series, scale: DisplayUnit, now: float) -> PlotSeries:
    """Return a series over runs, run by run, each named by when it started."""
    names = name_runs(series, now)
    points = [_scaled(name, point, scale) for name, point in zip(names, series.points, strict=True)]
    return PlotSeries("median, from the least to p95", points)


def build_parameter_points(series: Series, scale: DisplayUnit) -> PlotSeries:
    """Return a series over a parameter, to scale where its values are numbers."""
    points = [
        _scaled(point.x if series.numeric else point.label, point, scale) for point in series.points
    ]
    return PlotSeries(series.name, points)


def _scaled(x: float | str, point: Point, scale: DisplayUnit) -> PlotPoint:
    low, high = (None if y is None else y * scale.factor for y in (point.low, point.high))
    return PlotPoint(x, point.y * scale.factor, low, high)


def name_runs(series: Series, now: float) -> list[str]:
    """Return when each run started; the end of its id tells apart those of one minute."""
    times = [
        format_moment(point.x, now) if series.numeric else point.run for point in series.points
    ]
    counts = Counter(times)
    return [
        f"{name} {point.run[-4:]}" if counts[name] > 1 else name
        for name, point in zip(times, series.points, strict=True)
    ]


def describe_over_runs(series: Series, now: float) -> list[str]:
    """Return how a metric went over runs, in a few lines."""
    names = name_runs(series, now)
    points = series.points
    told = dict(zip(names, points, strict=True))
    ordered = sorted(told, key=lambda name: told[name].y, reverse=series.better == "higher")
    shown = [("newest", names[-1]), ("best", ordered[0]), ("worst", ordered[-1])]
    if series.better == "none":
        shown = [("newest", names[-1]), ("least", ordered[0]), ("most", ordered[-1])]
    words = ", ".join(f"{word} {_value(told[name], series)} ({name})" for word, name in shown)
    count = format_quantity(len(points), "run")
    newest = [f"{name} {_value(told[name], series)}" for name in names[: -_MOST_TOLD - 1 : -1]]
    return [f"{count}{_better(series)}: {words}", f"From the newest: {', '.join(newest)}"]


def describe_over_parameter(series: Sequence[Series], parameter: str) -> list[str]:
    """Return each series' values, one series a line."""
    metric = format_folded_name(series[0].metric, series[0].unit)
    lines = [f"{metric} over {parameter}{_better(series[0])}"]
    for one in series:
        told = [f"{point.label} {_value(point, one)}" for point in one.points[:_MOST_TOLD]]
        more = len(one.points) - len(told)
        lines.append(f"{one.name}: {', '.join(told)}" + (f" and {more} more" if more > 0 else ""))
    return lines


def _better(series: Series) -> str:
    return "" if series.better == "none" else f", {series.better} is better"


def _value(point: Point, series: Series) -> str:
    verdict = "" if point.status == CaseStatus.PASSED else f" {point.status}"
    return f"{format_value(point.y, series.unit, series.metric)}{verdict}"
