"""``spbench results history`` and ``series``: a metric over runs or a parameter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption
from spbench.errors import NothingSelected, UsageError, did_you_mean
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.report.metric_history import MetricHistory
    from spbench.report.recorded import RecordedRun
    from spbench.report.series import Point, Series

_SERIES_COLUMNS = ("over", "value", "least", "p95", "verdict")
WIDTH = 32
"""Columns of the plot."""


class Format(StrEnum):
    """The formats of a history."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


def register(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command()(series)
    group.command()(history)


def history(
    case: Annotated[str, typer.Argument(help="Id of a case", metavar="CASE")],
    metric: Annotated[str, typer.Argument(help="Metric of the case", metavar="METRIC")] = "time_ms",
    machines: Annotated[
        str | None,
        typer.Option(
            "--machines",
            help="Id of the machines (their fingerprint)",
            metavar="ID",
            show_default="those of the newest run",
        ),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--newest",
            help="Show the newest N runs, at most 500",
            metavar="N",
            min=1,
            show_default="200",
        ),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="text, csv or json", metavar="FORMAT")
    ] = Format.TEXT,
    home: HomeOption = None,
) -> None:
    """Print a metric over runs on the same machines, and its changes."""
    from spbench.record.number_formatting import replace_controls
    from spbench.record.runs.folder import find_home
    from spbench.report.metric_history import DEFAULT_RUNS, MAX_RUNS, load_history

    count = DEFAULT_RUNS if newest is None else newest
    if count > MAX_RUNS:
        use = "spbench results series prints any number"
        raise UsageError(f"--newest {count}: a history is of {MAX_RUNS} runs at most; {use}")
    metric_history = load_history(find_home(home, os.environ), case, metric, machines, count)
    if format_ is Format.JSON:
        print(json.dumps(_build_document(metric_history), indent=1))
        return
    for line in (
        _render_csv(metric_history) if format_ is Format.CSV else _render_lines(metric_history)
    ):
        print(replace_controls(line))


def _render_lines(history: MetricHistory) -> Iterator[str]:
    from spbench.record.number_formatting import format_factor, format_value
    from spbench.report.scale import fit_scale

    yield f"{history.case}: {history.metric}, better: {history.better}"
    scale = fit_scale(run.value for run in history.runs)
    mark_by_index = {
        step.index: f"{format_factor(step.ratio)}, {history.outcome(step)}"
        for step in history.steps
    }
    for index, run in enumerate(history.runs):
        plot_column = scale.to_index(run.value, WIDTH)
        plot = f"{'·' * plot_column}●{'·' * (WIDTH - 1 - plot_column)}"
        step = f"  {mark_by_index[index]}" if index in mark_by_index else ""
        launches = format_quantity(run.launches, "launch", "launches")
        value = format_value(run.value, history.unit, history.metric)
        yield f"  {run.run:<46} {value:>9}  {plot}  {launches:<11}{step}".rstrip()
    yield _render_summary(history)


def _render_summary(history: MetricHistory) -> str:
    from spbench.stats.change_points import SIGNIFICANCE_LEVEL

    step_count = len(history.steps)
    steps_text = (
        f"{format_quantity(step_count, 'step')} in {format_quantity(len(history.runs), 'run')}"
    )
    steps_text += f" (chance below {SIGNIFICANCE_LEVEL:.0%})"
    hosts = ", ".join(map(str, history.machines.get("hosts", ())))
    location = f" on {hosts} ({history.machines.get('id')})" if hosts else ""
    omitted_counts = (
        (history.other_machines, "on other machines"),
        (history.other_work, "with other parameters or planted faults"),
        (history.earlier_runs, "before these"),
    )
    omissions = [
        f"; {format_quantity(omitted_count, 'run')} {relation} left out"
        for omitted_count, relation in omitted_counts
        if omitted_count
    ]
    return f"{history.why_no_steps or steps_text}{location}{''.join(omissions)}"


def _render_csv(history: MetricHistory) -> Iterator[str]:
    ratios = {step.index: step.ratio for step in history.steps}
    yield "run,median,launches,step"
    for index, run in enumerate(history.runs):
        yield f"{run.run},{run.value!r},{run.launches},{ratios.get(index, '')}"


def _build_document(history: MetricHistory) -> dict[str, object]:
    runs = [{"run": run.run, "median": run.value, "launches": run.launches} for run in history.runs]
    steps = [
        {
            "run": history.runs[step.index].run,
            "before": step.before,
            "after": step.after,
            "ratio": step.ratio,
            "outcome": history.outcome(step),
            "chance": step.p_value,
        }
        for step in history.steps
    ]
    document: dict[str, object] = {"case": history.case, "metric": history.metric}
    document |= {"unit": history.unit, "better": history.better}
    document |= {"machines": dict(history.machines)}
    document |= {"elsewhere": history.other_machines, "otherwise": history.other_work}
    document |= {"earlier": history.earlier_runs, "untold": history.why_no_steps}
    return {**document, "runs": runs, "steps": steps}


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
    from spbench.record.runs.history import list_summaries
    from spbench.record.runs.selection import select_runs
    from spbench.report.series import build_run_series

    root = find_home(home, os.environ)
    if over is not None:
        all_series = _build_series(read_run(find_run(root, run)), case, metric, over)
    else:
        chosen = select_runs(list_summaries(root), words)
        runs = [read_run(summary.folder) for summary in chosen if not summary.unreadable]
        all_series = [build_run_series(runs, case, metric)]
    if not any(series.points for series in all_series):
        raise NothingSelected(f"no run has a case {case!r} with the metric {metric!r}")
    _print_series(all_series)


def _build_series(run: RecordedRun, case: str, metric: str, parameter: str) -> list[Series]:
    from spbench.report.series import build_parameter_series, find_swept_parameters

    swept = find_swept_parameters(run, case)
    if parameter not in swept:
        suggestion = did_you_mean(parameter, swept) or f" (swept: {', '.join(swept) or 'nothing'})"
        raise UsageError(f"--over {parameter}: the cases {case!r} do not sweep it{suggestion}")
    return build_parameter_series(run, case, metric, parameter)


def _print_series(all_series: Iterable[Series]) -> None:
    from spbench.record.number_formatting import replace_controls
    from spbench.report.text_tables import align_columns

    for series in all_series:
        print(replace_controls(f"{series.name}: {series.metric}, better: {series.better}"))
        rows = [
            (point.label, *_format_values(series, point), point.status) for point in series.points
        ]
        for row in align_columns([_SERIES_COLUMNS, *rows], (1, 2, 3)):
            print(replace_controls(f"  {row}"))


def _format_values(series: Series, point: Point) -> list[str]:
    from spbench.record.number_formatting import format_value

    values = (point.y, point.low, point.high)
    return [
        "" if value is None else format_value(value, series.unit, series.metric) for value in values
    ]
