"""``spbench baseline``: what later runs are held against."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.completing import complete_baseline
from spbench.cli.ending import complain
from spbench.cli.request import HomeOption, RunOrReportArgument
from spbench.errors import UsageError

if TYPE_CHECKING:
    from spbench.report.baselines.model import BaselineCase, BaselineFile

NameArgument = Annotated[
    str,
    typer.Argument(
        help="A name in the home folder, or a file's path.", autocompletion=complete_baseline
    ),
]

group = typer.Typer(help="What later runs are held against.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(group, name="baseline")


@group.command("set")
def set_(
    name: NameArgument,
    run: RunOrReportArgument = "last",
    force: Annotated[
        bool, typer.Option("--force", help="Replace the baseline of that name.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Make a baseline of a run: a small file that can be committed."""
    from spbench.cli.records.recorded import run_or_report
    from spbench.record.runs.folder import home_of
    from spbench.report.baselines.files import name_of, path_of, save_baseline
    from spbench.report.baselines.making import baseline_of

    root = home_of(home, os.environ)
    path = path_of(root, name)
    if path.exists() and not force:
        raise UsageError(f"there is {path} already; --force replaces a baseline")
    made, told = baseline_of(name_of(path), run_or_report(root, run))
    save_baseline(root, name, made)
    _say(f"baseline {name}: {_cases(made)} of run {made.run}, in {path}", *told)
    _warn(made)


@group.command("list")
def list_(home: HomeOption = None) -> None:
    """List the baselines of the home folder."""
    from spbench.record.runs.folder import home_of
    from spbench.report.baselines.files import each

    for name, found in each(home_of(home, os.environ)):
        if isinstance(found, UsageError):
            _say(f"{name:<20}  {found}")
        else:
            _say(f"{name:<20}  {_cases(found):>9}  {found.run}  {found.suite}")


@group.command()
def show(name: NameArgument, home: HomeOption = None) -> None:
    """Show a baseline: its cases with their medians and the launches that these are of."""
    from spbench.record.runs.folder import home_of
    from spbench.report.baselines.files import load_baseline

    found = load_baseline(home_of(home, os.environ), name)
    _say(f"{found.name}: {found.suite}, of {', '.join(found.runs or [found.run])}")
    machines = found.environment.get("fingerprint")
    for part, value in machines.items() if isinstance(machines, dict) else ():
        _say(f"{part}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    for case in found.cases:
        _say(*_lines(case))


def _lines(case: BaselineCase) -> list[str]:
    from spbench.record.number_formatting import number

    lines = [f"{case.id}: {case.benchmark}, {case.np} ranks"]
    for name, of in case.metrics.items():
        launches = ", ".join(map(number, of.launches))
        unit = "" if of.unit == "1" else f" {of.unit}"
        lines.append(f"  {name:<20} {number(of.value):>9}{unit}  launches {launches}")
    return lines


@group.command()
def remove(name: NameArgument, home: HomeOption = None) -> None:
    """Remove a baseline; its runs stay."""
    from spbench.record.runs.folder import home_of
    from spbench.report.baselines.files import remove_baseline

    _say(f"removed {remove_baseline(home_of(home, os.environ), name)}")


@group.command()
def update(
    name: NameArgument,
    run: RunOrReportArgument = "last",
    widen: Annotated[
        bool, typer.Option("--widen", help="Take in launches that are not better, too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compare although machines or parameters differ.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Bring a baseline up to date: what is better replaces what was, new cases are added."""
    from spbench.cli.records.recorded import run_or_report
    from spbench.record.runs.folder import home_of
    from spbench.report.baseline_gate import comparison_of
    from spbench.report.baselines.files import load_baseline, path_of, save_baseline
    from spbench.report.baselines.making import as_run, updated

    root = home_of(home, os.environ)
    old, later = load_baseline(root, name), run_or_report(root, run)
    comparison = comparison_of(root, as_run(old, path_of(root, name)), later, force=force)
    new, told = updated(old, later, comparison, widen=widen)
    if new != old:
        save_baseline(root, name, new)
    _say(*told, f"baseline {name}: {'updated' if new != old else 'as it was'}")
    _warn(new)


def _warn(baseline: BaselineFile) -> None:
    from spbench.report.baselines.making import launch_warnings

    for warning in launch_warnings(baseline):
        complain(f"spbench: {warning}")


def _cases(baseline: BaselineFile) -> str:
    from spbench.record.number_formatting import counted

    return counted(len(baseline.cases), "case")


def _say(*lines: str) -> None:
    from spbench.record.number_formatting import clean

    for line in lines:
        print(clean(line))
