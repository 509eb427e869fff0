"""The series of plots over runs or over a parameter, and their values as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spbench.record.metric_names import format_folded_name
from spbench.record.number_formatting import DisplayUnit, choose_unit, format_value
from spbench.record.planted_faults import FaultOutcome
from spbench.record.runs.case_durations import applies_to_case
from spbench.record.runs.marks import RunMark, RunMarks
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.series import Point, Series, build_parameter_series, find_swept_parameters
from spbench.tui.results.run_rows import name_starts
from spbench.tui.widgets.plot import PlotPoint, PlotSeries
from spbench.tui.widgets.text import cell_width, fit
from spbench_core.events.statuses import CaseStatus
from spbench_core.number_text import format_quantity

LINES_NOTE = "vertical lines: minimum to p95"
"""The meaning of the lines at the points."""
_MAX_POINTS = 12
"""Largest number of points of a series in the text."""
_TABLE_GAP = 3
"""Cells between two columns of the table of runs."""


def list_metric_units(runs: Iterable[RecordedRun], case: CasePart | None) -> dict[str, str]:
    """Return the units of a case's metrics, also of those in other runs only.

    Args:
        runs: The runs, in any order.
        case: The case in the run under the cursor, which comes first; None without one.
    """
    if case is None:
        return {}
    parts = [case, *(run.cases[case.id] for run in runs if case.id in run.cases)]
    units: dict[str, str] = {}
    for part in parts:
        for name, metric in part.metrics.items():
            units.setdefault(name, metric.unit)
    return units


def select_case_marks(marks: RunMarks, runs: Iterable[RecordedRun], case_id: str) -> RunMarks:
    """Return the marks of runs, without those of faults planted in other cases only."""
    case_marks = dict(marks)
    for run in runs:
        faults = run.summary.faults
        if faults and not any(applies_to_case(fault, case_id) for fault in faults):
            case_marks[run.summary.id] = [
                mark for mark in marks.get(run.summary.id, ()) if mark is not RunMark.FAULT
            ]
    return {run_id: run_marks for run_id, run_marks in case_marks.items() if run_marks}


def describe_runs_without(
    runs: Sequence[RecordedRun], case_id: str, metric: str, now: float
) -> str:
    """Return the runs of a case that lack a metric, with its status, as text."""
    names = name_starts({run.summary.id: run.summary.started for run in runs}, now)
    lacking = [
        f"{names[run.summary.id]} {run.cases[case_id].status_text}"
        for run in runs
        if case_id in run.cases and metric not in run.cases[case_id].metrics
    ]
    if not lacking:
        return ""
    omitted_count = len(lacking) - _MAX_POINTS
    omission = f" and {omitted_count} more" if omitted_count > 0 else ""
    return f"Not measured in {', '.join(lacking[:_MAX_POINTS])}{omission}"


def find_swept_case(run: RecordedRun) -> str | None:
    """Return the name of the first case that sweeps a parameter; None without any."""
    names = dict.fromkeys(case.name for case in run.cases.values())
    return next((name for name in names if find_swept_parameters(run, name)), None)


def explain_no_sweep(run: RecordedRun, case_name: str) -> str:
    """Explain that a case sweeps nothing, with the keys to one with a sweep."""
    swept = find_swept_case(run)
    message = f"the suite sweeps no parameter of {case_name}"
    if swept is None:
        return message
    return f"{message}; n and N go to other cases, such as those of {swept}"


def build_compared_series(
    run: RecordedRun, marked: RecordedRun | None, case_name: str, metric: str, parameter: str
) -> list[Series]:
    """Return the series of a run over a parameter, after those of the marked run.

    With two runs, the names begin with a (the marked run) or b. Series of the marked run in another
    unit are left out.
    """
    series_b = _list_series(run, case_name, metric, parameter)
    if marked is None or not series_b:
        return series_b
    series_a = _list_series(marked, case_name, metric, parameter)
    comparable = [series for series in series_a if series.unit == series_b[0].unit]
    if not comparable:
        return series_b
    return [
        replace(series, name=f"{run_name} {series.name}")
        for run_name, all_series in (("a", comparable), ("b", series_b))
        for series in all_series
    ]


def _list_series(run: RecordedRun, case_name: str, metric: str, parameter: str) -> list[Series]:
    all_series = build_parameter_series(run, case_name, metric, parameter)
    return [series for series in all_series if series.points]


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

    The signs of a run's marks follow its name. Its point, or that of a case which did not run to
    its end, is not joined with the others.
    """
    names = [
        " ".join((name, *(mark[0] for mark in marks.get(point.run, ()))))
        for name, point in zip(name_runs(series, now), series.points, strict=True)
    ]
    points = [
        replace(_scale_point(name, point, unit), is_apart=_is_apart(point, marks))
        for name, point in zip(names, series.points, strict=True)
    ]
    return PlotSeries("median", points)


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


def _is_apart(point: Point, marks: RunMarks) -> bool:
    """Return whether a point is not comparable with those of the other runs."""
    return point.run in marks or not CaseStatus(point.status).is_measured


def name_runs(series: Series, now: float) -> list[str]:
    """Return the start times of the runs; their ids if a start time is unknown."""
    if not series.numeric:
        return [point.run for point in series.points]
    return list(name_starts({point.run: point.x for point in series.points}, now).values())


def describe_over_runs(series: Series, now: float, marks: RunMarks) -> str:
    """Return the newest, best and worst value of a metric over runs.

    Runs with marks, or without an end of the case, are neither the best nor the worst, unless there
    are no others.
    """
    names = name_runs(series, now)
    points = series.points
    points_by_name = dict(zip(names, points, strict=True))
    comparable_names = [name for name in names if not _is_apart(points_by_name[name], marks)]
    names_best_first = sorted(
        comparable_names or names,
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
    left_out = len(names) - len(comparable_names) if comparable_names else 0
    runs = format_quantity(left_out, "marked or unfinished run")
    note = f" (without {runs})" if left_out else ""
    return f"{run_count}{_format_better(series)}: {extremes}{note}"


def describe_only_run(series: Series, now: float, marks: RunMarks) -> str:
    """Return the value of the only run with a metric, and the key that adds one."""
    [point] = series.points
    [name] = name_runs(series, now)
    value = _format_point(point, series, marks)
    return f"1 run of this case: {value} ({name}). R runs it again, for a second point."


def arrange_run_values(series: Series, now: float, marks: RunMarks, width: int) -> list[str]:
    """Return lines of the runs and their values, row by row from the newest on."""
    newest_first = list(zip(name_runs(series, now), series.points, strict=True))[::-1]
    newest_first = newest_first[:_MAX_POINTS]
    values = [format_value(point.y, series.unit, series.metric) for _, point in newest_first]
    name_width = max(cell_width(name) for name, _ in newest_first)
    value_width = max(map(cell_width, values))
    cells = [
        f"{fit(name, name_width)} {fit(value, value_width, 'right')}{_format_remarks(point, marks)}"
        for (name, point), value in zip(newest_first, values, strict=True)
    ]
    cells_width = max(map(cell_width, cells))
    columns = max(1, (width + _TABLE_GAP) // (cells_width + _TABLE_GAP))
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    gap = " " * _TABLE_GAP
    return [gap.join(fit(cell, cells_width) for cell in row).rstrip() for row in rows]


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
    return f"{format_value(point.y, series.unit, series.metric)}{_format_remarks(point, marks)}"


def _format_remarks(point: Point, marks: RunMarks) -> str:
    """Return the status of a point that did not pass, and its other marks."""
    status = "" if point.status == CaseStatus.PASSED else f" {point.status_text}"
    is_named = point.status_text == FaultOutcome.FOUND
    shown = [mark for mark in marks.get(point.run, ()) if not (is_named and mark is RunMark.FAULT)]
    return status + "".join(f" {mark}" for mark in shown)
