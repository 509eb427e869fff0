"""``spbench results history``: a metric over runs on the same machines, and its steps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import HomeOption
from spbench.errors import UsageError
from spbench_core.quantities import format_quantity

if TYPE_CHECKING:
    from spbench.report.metric_history import MetricHistory

WIDTH = 32
"""Columns of the plot."""


class Format(StrEnum):
    """The formats of a history."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


def register(group: typer.Typer) -> None:
    """Add the command of this module."""
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
    from spbench.record.number_formatting import strip_controls
    from spbench.record.runs.folder import find_home
    from spbench.report.metric_history import DEFAULT_RUNS, MOST_RUNS, load_history

    count = DEFAULT_RUNS if newest is None else newest
    if count > MOST_RUNS:
        use = "spbench results series prints any number"
        raise UsageError(f"--newest {count}: a history is of {MOST_RUNS} runs at most; {use}")
    found = load_history(find_home(home, os.environ), case, metric, machines, count)
    if format_ is Format.JSON:
        print(json.dumps(_document(found), indent=1))
        return
    for line in _csv(found) if format_ is Format.CSV else _lines(found):
        print(strip_controls(line))


def _lines(found: MetricHistory) -> Iterator[str]:
    from spbench.record.number_formatting import format_factor, format_value
    from spbench.report.scale import fit_scale

    yield f"{found.case}: {found.metric}, better: {found.better}"
    scale = fit_scale(run.value for run in found.runs)
    marks = {
        step.index: f"{format_factor(step.ratio)}, {found.outcome(step)}" for step in found.steps
    }
    for at, run in enumerate(found.runs):
        place = scale.to_index(run.value, WIDTH)
        plot = f"{'·' * place}●{'·' * (WIDTH - 1 - place)}"
        step = f"  {marks[at]}" if at in marks else ""
        launches = format_quantity(run.launches, "launch", "launches")
        value = format_value(run.value, found.unit, found.metric)
        yield f"  {run.run:<46} {value:>9}  {plot}  {launches:<11}{step}".rstrip()
    yield _summary(found)


def _summary(found: MetricHistory) -> str:
    from spbench.stats.change_points import LEVEL

    count = len(found.steps)
    steps = f"{format_quantity(count, 'step')} in {format_quantity(len(found.runs), 'run')}"
    steps += f" (chance below {LEVEL:.0%})"
    hosts = ", ".join(map(str, found.machines.get("hosts", ())))
    where = f" on {hosts} ({found.machines.get('id')})" if hosts else ""
    others = (
        (found.other_machines, "on other machines"),
        (found.other_work, "with other parameters or planted faults"),
        (found.earlier_runs, "before these"),
    )
    rest = [f"; {format_quantity(left, 'run')} {which} left out" for left, which in others if left]
    return f"{found.why_no_steps or steps}{where}{''.join(rest)}"


def _csv(found: MetricHistory) -> Iterator[str]:
    ratios = {step.index: step.ratio for step in found.steps}
    yield "run,median,launches,step"
    for at, run in enumerate(found.runs):
        yield f"{run.run},{run.value!r},{run.launches},{ratios.get(at, '')}"


def _document(found: MetricHistory) -> dict[str, object]:
    runs = [{"run": run.run, "median": run.value, "launches": run.launches} for run in found.runs]
    steps = [
        {
            "run": found.runs[step.index].run,
            "before": step.before,
            "after": step.after,
            "ratio": step.ratio,
            "outcome": found.outcome(step),
            "chance": step.chance,
        }
        for step in found.steps
    ]
    about: dict[str, object] = {"case": found.case, "metric": found.metric}
    about |= {"unit": found.unit, "better": found.better}
    about |= {"machines": dict(found.machines)}
    about |= {"elsewhere": found.other_machines, "otherwise": found.other_work}
    about |= {"earlier": found.earlier_runs, "untold": found.why_no_steps}
    return {**about, "runs": runs, "steps": steps}
