"""``spbench gate``: the slowdowns that a comparison with a run would find."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.error_reporting import print_to_stderr
from spbench.cli.help_pages import HelpGroup
from spbench.cli.request import HomeOption, SideArgument, print_progress
from spbench.errors import ExitCode, NothingSelected

if TYPE_CHECKING:
    from spbench.report.gate.check import GateCheck


class GateFormat(StrEnum):
    """The formats of a check of the gate."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    gate = typer.Typer(
        cls=HelpGroup, help="Test which slowdowns a comparison would find.", no_args_is_help=True
    )
    gate.command()(check)
    app.add_typer(gate, name="gate")


def check(
    run: SideArgument,
    home: HomeOption = None,
    format_: Annotated[
        GateFormat, typer.Option("--format", help="text or json", metavar="FORMAT")
    ] = GateFormat.TEXT,
    resamples: Annotated[
        int,
        typer.Option(
            "--resamples",
            help="Comparisons for each slowdown",
            metavar="N",
            min=20,
            max=100_000,
        ),
    ] = 200,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the random numbers", metavar="N")
    ] = 1,
    must_find: Annotated[
        float | None,
        typer.Option(
            "--must-find",
            help="Exit with 1 if a slowdown of this size would be missed in a case",
            metavar="PERCENT",
            min=0,
        ),
    ] = None,
) -> None:
    """Find the smallest slowdown that a comparison with a run reports, for each case."""
    from spbench.cli.records.recorded import load_side
    from spbench.cli.text_layout import output_width
    from spbench.record.runs.folder import find_home
    from spbench.report.comparison.conditions import make_past_lookup
    from spbench.report.gate.check import check_gate
    from spbench.report.gate.check_text import gate_check_lines, gate_object

    root = find_home(home, os.environ)
    recorded = load_side(root, run)
    past_launches = make_past_lookup(root, recorded, recorded)
    gate_check = check_gate(
        recorded, past_launches, resamples=resamples, seed=seed, progress=print_progress
    )
    if format_ is GateFormat.JSON:
        print(json.dumps(gate_object(gate_check), indent=1, allow_nan=False))
    else:
        for line in gate_check_lines(gate_check, output_width()):
            print(line)
    if not any(case.launches for case in gate_check.cases):
        raise NothingSelected(f"run {gate_check.run} has no case with a time that can be compared")
    if gate_check.missed_errors or not _finds_in_all_cases(gate_check, must_find):
        raise typer.Exit(ExitCode.FAILED)
    if all(case.smallest is None for case in gate_check.cases):
        print_to_stderr("spbench: error: a comparison with this run finds no slowdown in any case")
        raise typer.Exit(ExitCode.UNJUDGED)


def _finds_in_all_cases(gate_check: GateCheck, percent: float | None) -> bool:
    """Return whether a slowdown of `percent` is found in each case."""
    if percent is None:
        return True
    smallest_slowdowns = [case.smallest for case in gate_check.cases]
    return all(
        fraction is not None and 100 * fraction <= percent + 1e-9 for fraction in smallest_slowdowns
    )
