"""The view that plots a metric over runs or over a swept parameter."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from spbench.record.metric_names import format_folded_name
from spbench.record.number_formatting import DisplayUnit, choose_unit, format_value
from spbench.record.runs.marks import RunMarks
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.series import (
    Point,
    Series,
    build_parameter_series,
    build_run_series,
    find_swept_parameters,
)
from spbench.tui.results.run_names import name_starts
from spbench.tui.widgets.plot import Plot, PlotPoint, PlotSeries
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

_MAX_POINTS = 12
"""Largest number of points of a series in the text."""


class PlotView(Vertical):
    """A plot of a metric of a case, with a title and the same values as text."""

    HELP: ClassVar[str] = """\
A metric of the case under the cursor of the cases: over the runs that the filter shows, or, within
the run under the cursor, over a parameter that the suite sweeps, with a series for each
combination of the others. Each point is a median; its line goes from the least to the p95.
! and ≠ after a run mean a planted fault, or other machines or versions than the newest run has.
m shows the next metric, p the next parameter, n and N the next case and the one before."""
    DEFAULT_CSS = """
    PlotView #plot-title { height: auto; max-height: 3; }
    PlotView Plot { height: 1fr; min-height: 6; max-height: 24; }
    PlotView VerticalScroll { height: auto; max-height: 30%; scrollbar-size-vertical: 1; }
    PlotView #plot-summary { height: auto; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(id="plot-view")
        self._runs: Sequence[RecordedRun] = ()
        self._marks: RunMarks = {}
        self._run: RecordedRun | None = None
        self._case: CasePart | None = None
        self._metric = ""
        self._parameter = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="plot-title", markup=False)
        yield Plot(id="plot")
        with VerticalScroll(can_focus=False):
            yield Static("", id="plot-summary", markup=False)

    @property
    def chart(self) -> Plot:
        """The plot."""
        return self.query_one(Plot)

    def show_runs(
        self, runs: Sequence[RecordedRun], case: CasePart | None, marks: RunMarks
    ) -> None:
        """Plot the metric of a case over runs.

        Args:
            runs: The runs.
            case: The case; None without one.
            marks: The marks of all runs of the home.
        """
        self._runs = runs
        self._marks = marks
        self._run = None
        self._case = case
        self._draw()

    def show_parameter(self, run: RecordedRun, case: CasePart | None) -> None:
        """Plot the metric of the cases with the same name over a swept parameter."""
        self._run = run
        self._case = case
        self._draw()

    def next_metric(self) -> None:
        """Show the next metric of the case."""
        self._metric = _next_name(self._metric, list(self._case.metrics) if self._case else [])
        self._draw()

    def next_parameter(self) -> None:
        """Show the metric over the next swept parameter."""
        self._parameter = _next_name(self._parameter, self._list_swept())
        self._draw()

    def show_nothing(self, message: str) -> None:
        """Show a message on why there is no plot."""
        self._show(message, [], "", "", [])

    def _list_swept(self) -> list[str]:
        return find_swept_parameters(self._run, self._case.name) if self._run and self._case else []

    def _draw(self) -> None:
        if self._case is None or not self._case.metrics:
            self.show_nothing(f"{self._case.id} measured nothing" if self._case else "no case")
            return
        self._metric = _keep_or_first(self._metric, list(self._case.metrics))
        if self._run is None:
            self._plot_over_runs(self._case)
        else:
            self._plot_over_parameter(self._run, self._case)

    def _plot_over_runs(self, case: CasePart) -> None:
        now = time.time()
        series = build_run_series(self._runs, case.id, self._metric)
        if not series.points:
            self.show_nothing(
                f"no run that is shown has {_format_title(self._metric, case)} of {case.id}"
            )
            return
        head = f"{self._format_metric(case)} of {case.id}"
        lines = describe_over_runs(series, now, self._marks)
        unit = choose_plot_unit([series])
        points = build_run_plot_series(series, unit, now, self._marks)
        self._show(head, [points], "run", format_axis_title(series, unit), lines)

    def _plot_over_parameter(self, run: RecordedRun, case: CasePart) -> None:
        swept = self._list_swept()
        if not swept:
            self.show_nothing(f"the suite sweeps no parameter of {case.name}")
            return
        parameter = self._parameter = _keep_or_first(self._parameter, swept)
        swept_series = build_parameter_series(run, case.name, self._metric, parameter)
        all_series = [series for series in swept_series if series.points]
        if not all_series:
            self.show_nothing(
                f"{_format_title(self._metric, case)} of {case.name} was not measured"
            )
            return
        head = (
            f"{self._format_metric(case)} of {case.name} "
            f"over {parameter}{_format_position('p', parameter, swept)}"
        )
        unit = choose_plot_unit(all_series)
        points = [build_parameter_plot_series(series, unit) for series in all_series]
        lines = describe_over_parameter(all_series, parameter)
        self._show(head, points, parameter, format_axis_title(all_series[0], unit), lines)

    def _format_metric(self, case: CasePart) -> str:
        """Return the title of the metric, with its position among the metrics of the case."""
        position = _format_position("m", self._metric, case.metrics)
        return f"{_format_title(self._metric, case)}{position}"

    def _show(
        self, head: str, points: Sequence[PlotSeries], x: str, y: str, lines: Sequence[str]
    ) -> None:
        self.query_one("#plot-title", Static).update(head)
        self.chart.display = bool(points)
        self.chart.update(points, x, y)
        self.query_one("#plot-summary", Static).update("\n".join(lines))


def _format_title(metric: str, case: CasePart) -> str:
    return format_folded_name(metric, case.metrics[metric].unit)


def _keep_or_first(name: str, names: Sequence[str]) -> str:
    return name if name in names else names[0]


def _next_name(name: str, names: Sequence[str]) -> str:
    """Return the next name, after the last one the first."""
    if name not in names:
        return names[0] if names else name
    return names[(names.index(name) + 1) % len(names)]


def _format_position(key: str, name: str, names: Iterable[str]) -> str:
    """Return `` (m: 2 of 5)``; empty for a single name."""
    listed = list(names)
    return f" ({key}: {listed.index(name) + 1} of {len(listed)})" if len(listed) > 1 else ""


def choose_plot_unit(all_series: Sequence[Series]) -> DisplayUnit:
    """Return the unit in which series of one metric are plotted."""
    values = (point.y for series in all_series for point in series.points)
    return choose_unit(values, all_series[0].unit)


def format_axis_title(series: Series, unit: DisplayUnit) -> str:
    """Return ``time in us``."""
    name = format_folded_name(series.metric, series.unit)
    return name + (f" in {unit.unit}" if unit.unit else "")


def build_run_plot_series(
    series: Series, unit: DisplayUnit, now: float, marks: RunMarks
) -> PlotSeries:
    """Return the points of a series over runs, which are named by their start times.

    The signs of a run's marks follow its name.
    """
    names = [
        " ".join((name, *(mark[0] for mark in marks.get(point.run, ()))))
        for name, point in zip(name_runs(series, now), series.points, strict=True)
    ]
    points = [
        _scale_point(name, point, unit) for name, point in zip(names, series.points, strict=True)
    ]
    return PlotSeries("median, from the least to p95", points)


def build_parameter_plot_series(series: Series, unit: DisplayUnit) -> PlotSeries:
    """Return the points of a series over a parameter, to scale if it is a number."""
    points = [
        _scale_point(point.x if series.numeric else point.label, point, unit)
        for point in series.points
    ]
    return PlotSeries(series.name, points)


def _scale_point(x: float | str, point: Point, unit: DisplayUnit) -> PlotPoint:
    low, high = (None if y is None else y * unit.factor for y in (point.low, point.high))
    return PlotPoint(x, point.y * unit.factor, low, high)


def name_runs(series: Series, now: float) -> list[str]:
    """Return the start times of the runs; their ids if a start time is unknown."""
    if not series.numeric:
        return [point.run for point in series.points]
    return list(name_starts({point.run: point.x for point in series.points}, now).values())


def describe_over_runs(series: Series, now: float, marks: RunMarks) -> list[str]:
    """Return a text of a metric over runs, in a few lines.

    Runs with marks are neither the best nor the worst, unless all have one.
    """
    names = name_runs(series, now)
    points = series.points
    points_by_name = dict(zip(names, points, strict=True))
    unmarked_names = [name for name in names if points_by_name[name].run not in marks]
    names_best_first = sorted(
        unmarked_names or names,
        key=lambda name: points_by_name[name].y,
        reverse=series.better == "higher",
    )
    labelled_names = [
        ("newest", names[-1]),
        ("best", names_best_first[0]),
        ("worst", names_best_first[-1]),
    ]
    if series.better == "none":
        labelled_names = [
            ("newest", names[-1]),
            ("least", names_best_first[0]),
            ("most", names_best_first[-1]),
        ]
    extremes = ", ".join(
        f"{label} {_format_point(points_by_name[name], series, marks)} ({name})"
        for label, name in labelled_names
    )
    run_count = format_quantity(len(points), "run")
    point_texts = [
        f"{name} {_format_point(points_by_name[name], series, marks)}"
        for name in names[: -_MAX_POINTS - 1 : -1]
    ]
    left_out = len(names) - len(unmarked_names) if unmarked_names else 0
    note = f" (without {format_quantity(left_out, 'marked run')})" if left_out else ""
    return [
        f"{run_count}{_format_better(series)}: {extremes}{note}",
        f"From the newest: {', '.join(point_texts)}",
    ]


def describe_over_parameter(all_series: Sequence[Series], parameter: str) -> list[str]:
    """Return a text of the values of each series, one per line."""
    metric = format_folded_name(all_series[0].metric, all_series[0].unit)
    lines = [f"{metric} over {parameter}{_format_better(all_series[0])}"]
    for series in all_series:
        values = [
            f"{point.label} {_format_point(point, series, {})}"
            for point in series.points[:_MAX_POINTS]
        ]
        omitted_count = len(series.points) - len(values)
        omission = f" and {omitted_count} more" if omitted_count > 0 else ""
        lines.append(f"{series.name}: {', '.join(values)}{omission}")
    return lines


def _format_better(series: Series) -> str:
    return "" if series.better == "none" else f", {series.better} is better"


def _format_point(point: Point, series: Series, marks: RunMarks) -> str:
    status = "" if point.status == CaseStatus.PASSED else f" {point.status}"
    marks_text = "".join(f" {mark}" for mark in marks.get(point.run, ()))
    return f"{format_value(point.y, series.unit, series.metric)}{status}{marks_text}"
