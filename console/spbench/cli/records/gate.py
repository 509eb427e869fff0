"""``spbench gate``: what a comparison with a run would find."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.ending import complain
from spbench.cli.request import HomeOption, RunOrReportArgument, print_progress
from spbench.errors import ExitCode, NothingSelected

if TYPE_CHECKING:
    from spbench.report.gate.check import GateCheck


class GateFormat(StrEnum):
    """The formats of a check of the gate."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    gate = typer.Typer(help="Test what a comparison would find.", no_args_is_help=True)
    gate.command()(check)
    app.add_typer(gate, name="gate")


def check(
    run: RunOrReportArgument,
    home: HomeOption = None,
    format_: Annotated[
        GateFormat, typer.Option("--format", help="text or json.", metavar="FORMAT")
    ] = GateFormat.TEXT,
    resamples: Annotated[
        int, typer.Option("--resamples", help="Comparisons for each slowdown.", min=20, max=100_000)
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Of the draws.")] = 1,
    must_find: Annotated[
        float | None,
        typer.Option(
            "--must-find",
            help="Exit 1 where a case's slowdown of so many percent is not found.",
            metavar="PERCENT",
            min=0,
        ),
    ] = None,
) -> None:
    """Plant slowdowns and errors into a run's launches: which does compare find?"""
    from spbench.cli.records.recorded import run_or_report
    from spbench.record.number_formatting import clean
    from spbench.record.runs.folder import home_of
    from spbench.report.gate.check import check_gate
    from spbench.report.gate.words import gate_object
    from spbench.report.past import past_of

    root = home_of(home, os.environ)
    recorded = run_or_report(root, run)
    past = past_of(root, recorded, recorded)
    gate_check = check_gate(recorded, past, resamples=resamples, seed=seed, say=print_progress)
    if format_ is GateFormat.JSON:
        print(json.dumps(gate_object(gate_check), indent=1, allow_nan=False))
    else:
        for line in _lines(gate_check):
            print(clean(line))
    if not any(one.launches for one in gate_check.cases):
        raise NothingSelected(f"run {gate_check.run} has no case with a time that can be compared")
    if gate_check.missed_errors or not _found(gate_check, must_find):
        raise typer.Exit(ExitCode.FAILED)
    if all(case.smallest is None for case in gate_check.cases):
        complain("spbench: error: a comparison with this run finds no slowdown in any case")
        raise typer.Exit(ExitCode.UNJUDGED)


def _found(gate_check: GateCheck, percent: float | None) -> bool:
    """Return whether a slowdown of ``percent`` is found in each case."""
    if percent is None:
        return True
    smallest = [case.smallest for case in gate_check.cases]
    return all(each is not None and 100 * each <= percent + 1e-9 for each in smallest)


def _lines(gate_check: GateCheck) -> Iterator[str]:
    from spbench.cli.tables import aligned
    from spbench.report.gate.words import GATE_COLUMNS, gate_remarks, gate_rows

    if gate_check.cases:
        yield from aligned([GATE_COLUMNS, *gate_rows(gate_check)], {1, 2, 3})
    yield from gate_remarks(gate_check)
