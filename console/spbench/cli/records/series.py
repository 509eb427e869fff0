"""``spbench results series``: a metric over runs, or over a swept parameter of one run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption
from spbench.errors import NothingSelected, UsageError, did_you_mean

if TYPE_CHECKING:
    from spbench.report.recorded import RecordedRun
    from spbench.report.series import Point, Series

HEADING = ("over", "value", "least", "p95", "verdict")


def register(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(series)


def series(
    case: Annotated[str, typer.Argument(help="Id of a case; with --over its name", metavar="CASE")],
    metric: Annotated[str, typer.Argument(help="Metric of the case", metavar="METRIC")] = "time_ms",
    over: Annotated[
        str | None, typer.Option("--over", help="Swept parameter", metavar="PARAMETER")
    ] = None,
    run: Annotated[str, typer.Option("--run", help="Run of --over", metavar="RUN")] = "last",
    words: Annotated[
        str,
        typer.Option(
            "--filter", help="Select runs as `spbench results list` does", metavar="FILTER"
        ),
    ] = "",
    home: HomeOption = None,
) -> None:
    """Print a metric over all runs, or over a parameter of one run."""
    from spbench.cli.records.recorded import read_run
    from spbench.record.runs.folder import find_home, find_run
    from spbench.record.runs.history import list_summaries, select_runs
    from spbench.report.series import build_run_series

    root = find_home(home, os.environ)
    if over is not None:
        plotted = _over(read_run(find_run(root, run)), case, metric, over)
    else:
        chosen = select_runs(list_summaries(root), words)
        runs = [read_run(summary.folder) for summary in chosen if not summary.unreadable]
        plotted = [build_run_series(runs, case, metric)]
    if not any(series.points for series in plotted):
        raise NothingSelected(f"no run has a case {case!r} with the metric {metric!r}")
    _print(plotted)


def _over(run: RecordedRun, case: str, metric: str, parameter: str) -> list[Series]:
    from spbench.report.series import build_parameter_series, find_swept_parameters

    swept = find_swept_parameters(run, case)
    if parameter not in swept:
        near = did_you_mean(parameter, swept) or f" (swept: {', '.join(swept) or 'nothing'})"
        raise UsageError(f"--over {parameter}: the cases {case!r} do not sweep it{near}")
    return build_parameter_series(run, case, metric, parameter)


def _print(plotted: Iterable[Series]) -> None:
    from spbench.cli.tables import align_columns
    from spbench.record.number_formatting import strip_controls

    for line in plotted:
        print(strip_controls(f"{line.name}: {line.metric}, better: {line.better}"))
        rows = [(point.label, *_value_cells(line, point), point.status) for point in line.points]
        for row in align_columns([HEADING, *rows], (1, 2, 3)):
            print(strip_controls(f"  {row}"))


def _value_cells(line: Series, point: Point) -> list[str]:
    from spbench.record.number_formatting import format_value

    values = (point.y, point.low, point.high)
    return [
        "" if value is None else format_value(value, line.unit, line.metric) for value in values
    ]
