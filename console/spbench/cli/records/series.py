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
    from spbench.report.series import Series

HEADING = ("over", "value", "least", "p95", "verdict")


def register(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(series)


def series(
    case: Annotated[str, typer.Argument(help="A case's id; with --over its name.")],
    metric: Annotated[str, typer.Argument(help="A metric of it.")] = "time_ms",
    over: Annotated[
        str | None, typer.Option("--over", help="A swept parameter.", metavar="PARAMETER")
    ] = None,
    run: Annotated[str, typer.Option("--run", help="The run of --over.")] = "last",
    words: Annotated[
        str, typer.Option("--filter", help="The runs, as results list selects them.")
    ] = "",
    home: HomeOption = None,
) -> None:
    """Print a metric of a case over the runs, or over a swept parameter of one run."""
    from spbench.cli.records.recorded import read_run
    from spbench.record.runs.folder import find_run, home_of
    from spbench.record.runs.history import select_runs, summaries
    from spbench.report.series import over_runs

    root = home_of(home, os.environ)
    if over is not None:
        found = _over(read_run(find_run(root, run)), case, metric, over)
    else:
        chosen = select_runs(summaries(root), words)
        runs = [read_run(summary.folder) for summary in chosen if not summary.unreadable]
        found = [over_runs(runs, case, metric)]
    if not any(one.points for one in found):
        raise NothingSelected(f"no run has a case {case!r} with the metric {metric!r}")
    _print(found)


def _over(run: RecordedRun, case: str, metric: str, parameter: str) -> list[Series]:
    from spbench.report.series import over_parameter, swept_parameters

    swept = swept_parameters(run, case)
    if parameter not in swept:
        near = did_you_mean(parameter, swept) or f" (swept: {', '.join(swept) or 'nothing'})"
        raise UsageError(f"--over {parameter}: the cases {case!r} do not sweep it{near}")
    return over_parameter(run, case, metric, parameter)


def _print(found: Iterable[Series]) -> None:
    from spbench.cli.tables import aligned
    from spbench.record.number_formatting import clean

    for one in found:
        print(clean(f"{one.name}: {one.metric} in {one.unit}, better: {one.better}"))
        rows = [
            (point.label, *map(_or_blank, (point.y, point.low, point.high)), point.status)
            for point in one.points
        ]
        for line in aligned([HEADING, *rows], (1, 2, 3)):
            print(clean(f"  {line}"))


def _or_blank(value: float | None) -> str:
    from spbench.record.number_formatting import number

    return "" if value is None else number(value)
