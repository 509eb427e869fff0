"""``spbench baseline``: the results to compare later runs with."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.error_reporting import print_to_stderr
from spbench.cli.help_pages import HelpGroup
from spbench.cli.request import HomeOption, RunOrReportArgument
from spbench.cli.value_completions import complete_baseline
from spbench.errors import UsageError
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.report.baselines.model import BaselineCase, BaselineFile

NameArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a baseline in the home folder, or a file",
        metavar="NAME",
        autocompletion=complete_baseline,
    ),
]

group = typer.Typer(
    cls=HelpGroup,
    help="Make and show baselines: what later runs are compared with.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(group, name="baseline")


@group.command("set")
def set_(
    name: NameArgument,
    run: RunOrReportArgument = "last",
    force: Annotated[bool, typer.Option("--force", help="Replace a baseline of that name")] = False,
    home: HomeOption = None,
) -> None:
    """Make a baseline of a run: a small file that you can commit."""
    from spbench.cli.records.recorded import load_run_or_report
    from spbench.record.runs.folder import find_home
    from spbench.report.baselines.creation import fault_warnings, launch_warnings, make_baseline
    from spbench.report.baselines.files import baseline_name, baseline_path, save_baseline

    root = find_home(home, os.environ)
    path = baseline_path(root, name)
    if path.exists() and not force:
        raise UsageError(f"there is {path} already; --force replaces a baseline")
    recorded = load_run_or_report(root, run)
    baseline, left_out = make_baseline(baseline_name(path), recorded)
    save_baseline(root, name, baseline)
    _print_clean(
        f"baseline {baseline.name}: {_count_cases(baseline)} of run {baseline.run}, in {path}"
    )
    _print_wrapped(*left_out)
    _print_warnings(*fault_warnings(recorded), *launch_warnings(baseline))


@group.command("list")
def list_(home: HomeOption = None) -> None:
    """List the baselines of the home folder."""
    from spbench.record.runs.folder import find_home
    from spbench.report.baselines.files import load_baselines

    for name, baseline in load_baselines(find_home(home, os.environ)):
        if isinstance(baseline, UsageError):
            _print_clean(f"{name:<20}  {baseline}")
        else:
            _print_clean(
                f"{name:<20}  {_count_cases(baseline):>9}  {baseline.run}  {baseline.suite}"
            )


@group.command()
def show(name: NameArgument, home: HomeOption = None) -> None:
    """Show the cases of a baseline with their medians and launches."""
    from spbench.record.runs.folder import find_home
    from spbench.report.baselines.files import load_baseline

    baseline = load_baseline(find_home(home, os.environ), name)
    _print_clean(
        f"{baseline.name}: {baseline.suite}, of {', '.join(baseline.runs or [baseline.run])}"
    )
    machines = baseline.environment.get("fingerprint")
    for part, value in machines.items() if isinstance(machines, dict) else ():
        _print_clean(f"{part}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    for case in baseline.cases:
        _print_clean(*_render_case(case))


def _render_case(case: BaselineCase) -> list[str]:
    from spbench.record.efficiency import format_metric, is_ratio_of_times
    from spbench.record.metric_names import format_folded_name

    disturbed = case.crowded or case.noisy is not None
    lines = [f"{case.id}: {case.benchmark}, {format_quantity(case.np, 'rank')}"]
    for key, metric in case.metrics.items():
        name = format_folded_name(key, metric.unit)
        value, *launches = (
            format_metric(figure, metric.unit, key, disturbed=disturbed)
            for figure in (metric.value, *metric.launches)
        )
        follows_from_times = is_ratio_of_times(key)
        note = "follows from the times" if follows_from_times else f"launches {', '.join(launches)}"
        lines.append(f"  {name:<20} {value:>9}  {note}")
    return lines


@group.command()
def remove(name: NameArgument, home: HomeOption = None) -> None:
    """Remove a baseline, but none of its runs."""
    from spbench.record.runs.folder import find_home
    from spbench.report.baselines.files import remove_baseline

    _print_clean(f"removed {remove_baseline(find_home(home, os.environ), name)}")


@group.command()
def update(
    name: NameArgument,
    run: RunOrReportArgument = "last",
    widen: Annotated[
        bool, typer.Option("--widen", help="Add launches that are not better, too")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compare even if machines or parameters differ")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Replace slower results of a baseline, and add new cases."""
    from spbench.cli.records.recorded import load_run_or_report
    from spbench.record.runs.folder import find_home
    from spbench.report.baselines.creation import (
        launch_warnings,
        make_baseline_run,
        update_baseline,
    )
    from spbench.report.baselines.files import baseline_path, load_baseline, save_baseline
    from spbench.report.gate.baseline_gate import compare_with_past

    root = find_home(home, os.environ)
    old = load_baseline(root, name)
    later = load_run_or_report(root, run)
    comparison = compare_with_past(
        root, make_baseline_run(old, baseline_path(root, name)), later, force=force
    )
    new, changes = update_baseline(old, later, comparison, widen=widen)
    if new != old:
        save_baseline(root, name, new)
    _print_wrapped(*changes)
    _print_clean(f"baseline {name}: {'updated' if new != old else 'unchanged'}")
    _print_warnings(*launch_warnings(new))


def _print_warnings(*warnings: str) -> None:
    from spbench.cli.text_layout import output_width
    from spbench.report.text_tables import wrap_text

    for warning in warnings:
        for line in wrap_text(f"spbench: {warning}", output_width(sys.stderr)):
            print_to_stderr(line)


def _print_wrapped(*lines: str) -> None:
    from spbench.cli.text_layout import output_width
    from spbench.report.text_tables import wrap_text

    for line in lines:
        _print_clean(*wrap_text(line, output_width()))


def _count_cases(baseline: BaselineFile) -> str:
    return format_quantity(len(baseline.cases), "case")


def _print_clean(*lines: str) -> None:
    from spbench.record.number_formatting import replace_controls

    for line in lines:
        print(replace_controls(line))
