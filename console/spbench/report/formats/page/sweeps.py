"""What a page plots over parameters: cases that sweep one, and links over their message sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spbench.report.comparison.model import HEADLINE
from spbench.report.formats.page.charts.plots import PlottedLine, PlottedPoint
from spbench.report.links import LinkMatrix, LinkTable, build_link_matrices
from spbench.report.recorded import RecordedRun
from spbench.report.series import Series, build_parameter_series, find_swept_parameters
from spbench.stats.summary import median

_SIZE = "bytes"


@dataclass(frozen=True, slots=True)
class SweepPlot:
    """A metric over a parameter, as lines."""

    case: str
    metric: str
    unit: str
    parameter: str
    lines: Sequence[PlottedLine]


def collect_sweeps(run: RecordedRun) -> Iterator[SweepPlot]:
    """Yield the sweeps of a run's cases over numbers, and of its links over message sizes."""
    for name in dict.fromkeys(case.name for case in run.cases.values()):
        for parameter in find_swept_parameters(run, name):
            for metric in _metrics(run, name):
                found = build_parameter_series(run, name, metric, parameter)
                lines = [_line(run, one) for one in found if len(one.points) > 1]
                if lines and found[0].numeric:
                    yield SweepPlot(name, metric, found[0].unit, parameter, lines)
    for matrix in build_link_matrices(run):
        yield from _of_links(run, matrix)


def _metrics(run: RecordedRun, name: str) -> list[str]:
    """Return what is plotted of the cases of a name: their time, and whatever has a reference."""
    cases = [case for case in run.cases.values() if case.name == name]
    limited = [metric for case in cases for metric in case.limits if metric in case.metrics]
    headed = [HEADLINE] if any(HEADLINE in case.metrics for case in cases) else []
    return list(dict.fromkeys((*headed, *limited)))


def _line(run: RecordedRun, series: Series) -> PlottedLine:
    points = []
    for point in series.points:
        limit = run.cases[point.case].limits.get(series.metric)
        bound = limit.value if limit else None
        points.append(PlottedPoint(point.x, point.label, point.y, point.low, point.high, bound))
    return PlottedLine(series.name, points)


def _of_links(run: RecordedRun, matrix: LinkMatrix) -> Iterator[SweepPlot]:
    """Yield each metric of a case's links over the message size: the usual pair, and the worst."""
    metrics = dict.fromkeys(table.name for table in matrix.tables if _SIZE in table.labels)
    for metric in metrics:
        tables = [one for one in matrix.tables if one.name == metric and _sized(one)]
        if len({one.labels[_SIZE] for one in tables}) > 1:
            limit = run.cases[matrix.case].limits.get(metric)
            lines = _usual_and_worst(tables, limit.value if limit else None)
            yield SweepPlot(matrix.case, metric, tables[0].unit, "message size", lines)


def _sized(table: LinkTable) -> bool:
    return isinstance(table.labels.get(_SIZE), int) and bool(table.values)


def _usual_and_worst(tables: Sequence[LinkTable], limit: float | None) -> list[PlottedLine]:
    ordered = sorted(tables, key=lambda one: one.labels[_SIZE])
    usual = PlottedLine(
        "median pair", [_point(one, median(one.values.values()), limit) for one in ordered]
    )
    if all(len(one.values) == 1 for one in ordered):
        return [usual]
    ends = (max if one.better == "lower" else min for one in ordered)
    worst = [
        _point(one, end(one.values.values()), None) for one, end in zip(ordered, ends, strict=True)
    ]
    return [usual, PlottedLine("worst pair", worst)]


def _point(table: LinkTable, value: float, limit: float | None) -> PlottedPoint:
    size = table.title.rpartition(", ")[2]
    return PlottedPoint(float(table.labels[_SIZE]), size, value, limit=limit)
