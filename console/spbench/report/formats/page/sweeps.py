"""The sweeps of a page: plots of cases over parameters, and of links over sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench.record.metric_names import format_metric_name
from spbench.record.number_formatting import choose_unit
from spbench.report.comparison.model import HEADLINE
from spbench.report.formats.page.charts.plots import PlottedLine, PlottedPoint, draw_lines
from spbench.report.formats.page.markup import Markup, tag, tile_grid
from spbench.report.links import LinkMatrix, LinkTable, build_link_matrices
from spbench.report.recorded import RecordedRun
from spbench.report.series import Series, build_parameter_series, find_swept_parameters
from spbench.stats.summary import median

MAX_PLOTS = 24
"""The largest number of plots."""
_SIZE_LABEL = "bytes"


@dataclass(frozen=True, slots=True)
class SweepPlot:
    """A metric over a parameter, as lines."""

    case: str
    metric: str
    unit: str
    parameter: str
    lines: Sequence[PlottedLine]


def sweeps_part(run: RecordedRun) -> Markup:
    """Return a plot for each sweep of a number, and for links over message sizes."""
    sweeps = list(collect_sweeps(run))
    return tile_grid(map(_draw_sweep, sweeps[:MAX_PLOTS]), len(sweeps) - MAX_PLOTS, "sweeps")


def _draw_sweep(sweep: SweepPlot) -> Markup:
    y_values = (point.y for line in sweep.lines for point in line.points)
    unit = choose_unit(y_values, sweep.unit)
    lines = [line.scale(unit.factor) for line in sweep.lines]
    unit_name = f", in {unit.unit}" if unit.unit else ""
    metric = format_metric_name(sweep.metric, sweep.unit)
    title = f"{sweep.case}: {metric} over {sweep.parameter}"
    plot = draw_lines(title, lines, sweep.parameter, f"{metric}{unit_name}")
    return tag("figure", tag("h3", title), plot, class_="tile")


def collect_sweeps(run: RecordedRun) -> Iterator[SweepPlot]:
    """Yield the sweeps of cases over numeric parameters, and of links over sizes."""
    for name in dict.fromkeys(case.name for case in run.cases.values()):
        for parameter in find_swept_parameters(run, name):
            for metric in _list_plotted_metrics(run, name):
                all_series = build_parameter_series(run, name, metric, parameter)
                lines = [_make_line(run, series) for series in all_series if len(series.points) > 1]
                if lines and all_series[0].numeric:
                    yield SweepPlot(name, metric, all_series[0].unit, parameter, lines)
    for matrix in build_link_matrices(run):
        yield from _collect_link_sweeps(run, matrix)


def _list_plotted_metrics(run: RecordedRun, name: str) -> list[str]:
    """Return the plotted metrics of cases: the time, and all metrics with a reference."""
    cases = [case for case in run.cases.values() if case.name == name]
    headline = [HEADLINE] if any(HEADLINE in case.metrics for case in cases) else []
    with_reference = [metric for case in cases for metric in case.limits if metric in case.metrics]
    return list(dict.fromkeys((*headline, *with_reference)))


def _make_line(run: RecordedRun, series: Series) -> PlottedLine:
    points = []
    for point in series.points:
        reference = run.cases[point.case].limits.get(series.metric)
        reference_value = reference.value if reference else None
        points.append(
            PlottedPoint(point.x, point.label, point.y, point.low, point.high, reference_value)
        )
    return PlottedLine(series.name, points)


def _collect_link_sweeps(run: RecordedRun, matrix: LinkMatrix) -> Iterator[SweepPlot]:
    """Yield the median and the worst pair of each metric over the message size."""
    metrics = dict.fromkeys(table.name for table in matrix.tables if _SIZE_LABEL in table.labels)
    for metric in metrics:
        tables = [table for table in matrix.tables if table.name == metric and _has_size(table)]
        if len({table.labels[_SIZE_LABEL] for table in tables}) > 1:
            reference = run.cases[matrix.case].limits.get(metric)
            lines = _make_median_and_worst_lines(tables, reference.value if reference else None)
            yield SweepPlot(matrix.case, metric, tables[0].unit, "message size", lines)


def _has_size(table: LinkTable) -> bool:
    return isinstance(table.labels.get(_SIZE_LABEL), int) and bool(table.values)


def _make_median_and_worst_lines(
    tables: Sequence[LinkTable], reference_value: float | None
) -> list[PlottedLine]:
    median_points = []
    worst_points = []
    for table in sorted(tables, key=lambda table: table.labels[_SIZE_LABEL]):
        pair_values = table.values.values()
        median_points.append(_make_point(table, median(pair_values), reference_value))
        worst_value = max(pair_values) if table.better == "lower" else min(pair_values)
        worst_points.append(_make_point(table, worst_value, None))
    median_line = PlottedLine("median pair", median_points)
    if all(len(table.values) == 1 for table in tables):
        return [median_line]
    return [median_line, PlottedLine("worst pair", worst_points)]


def _make_point(table: LinkTable, y_value: float, reference_value: float | None) -> PlottedPoint:
    size_text = table.title.rpartition(", ")[2]
    return PlottedPoint(
        float(table.labels[_SIZE_LABEL]), size_text, y_value, reference=reference_value
    )
