"""Commands that read suites and the catalog and run nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.completing import complete_benchmark
from spbench.cli.request import (
    ALL_CASES,
    CaseSelection,
    HomeOption,
    SetOption,
    SuiteArgument,
    case_options,
    launch_options,
    request_from,
)
from spbench.errors import UsageError, did_you_mean
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan
    from spbench_core.catalog.benchmark import Benchmark


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (validate, schema, benchmarks, command_, completion):
        app.command(name=command.__name__.rstrip("_"))(command)


def validate(
    suites: Annotated[list[Path], typer.Argument(help="Suite files, or shipped:NAME.")],
    overrides: SetOption = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List the cases.")] = False,
) -> None:
    """Check suites; every error of a file in one pass."""
    from spbench.cli.validate import validate as checked

    if code := checked(suites, overrides or (), verbose=verbose):
        raise typer.Exit(code)


def schema(
    what: Annotated[
        str, typer.Argument(help="suite, report, baseline, plan, cluster, profile or site.")
    ] = "suite",
    path: Annotated[
        bool, typer.Option("--path", help="Print where the schema of suites is, for editors.")
    ] = False,
) -> None:
    """Print the JSON Schema of suites (for editors), of reports, baselines, and other files."""
    from spbench.suites.settings import json_schema

    if path:
        print(_published(what))
        return
    if what == "suite":
        from spbench.suites.json_schema import suite_schema

        document = suite_schema()
    elif what == "report":
        from spbench.report.model import report_schema

        document = report_schema()
    elif what == "baseline":
        from spbench.report.baselines.model import baseline_schema

        document = baseline_schema()
    elif what == "plan":
        from spbench.planner.output.plan_json import plan_schema

        document = plan_schema()
    elif what == "cluster":
        from spbench.planner.cluster.reader import ClusterFile

        document = json_schema(ClusterFile)
    elif what == "profile":
        from spbench.planner.profile.json_reader import ProfileFile

        document = json_schema(ProfileFile)
    elif what == "site":
        from spbench.batch.site import SiteFile

        document = json_schema(SiteFile)
    else:
        known = "suite, report, baseline, plan, cluster, profile and site"
        raise UsageError(f"there is no schema of {what!r}; there are {known}")
    print(json.dumps(document, indent=1))


def _published(what: str) -> Path:
    from spbench.suites.json_schema import PUBLISHED

    if what != "suite":
        raise UsageError(f"--path is for suites: the schema of {what!r} is no file, only printed")
    return PUBLISHED


def benchmarks(
    name: Annotated[
        str | None,
        typer.Argument(help="One benchmark, as halo.exchange.", autocompletion=complete_benchmark),
    ] = None,
) -> None:
    """List the benchmarks; with a name, one's parameters, metrics, checks and faults."""
    from spbench_core.catalog import BENCHMARKS

    if name is None:
        width = max(map(len, BENCHMARKS))
        for entry in BENCHMARKS.values():
            print(f"{entry.name:<{width}} {entry.summary}")
        return
    if name not in BENCHMARKS:
        near = did_you_mean(name, BENCHMARKS)
        raise UsageError(f"no benchmark is called {name!r}{near}; see spbench benchmarks")
    _describe(BENCHMARKS[name])


def _describe(entry: Benchmark) -> None:
    from spbench_core.catalog import COMMON_FAULTS

    names = [*(param.name for param in entry.params), *(metric.name for metric in entry.metrics)]
    width = max(map(len, names))
    print(f"{entry.name}: {entry.summary}")
    if entry.plugin:
        print(f"of the plug-in {entry.plugin}")
    print("\nparameters: params, matrix and zip of a case")
    for param in entry.params:
        default = "left out" if param.default is None else param.default
        choices = f" [{' | '.join(param.choices)}]" if param.choices else ""
        print(f"  {param.name:<{width}} {param.help}{choices} (default: {default})")
    print("metrics: expect of a case")
    if entry.names_metrics:
        print("  and those that its parameters name")
    for metric in entry.metrics:
        print(f"  {metric.name:<{width}} {metric.help} ({metric.unit}, better: {metric.better})")
    print(f"checks: a case fails where one does\n  {', '.join(entry.checks)}")
    faults = ", ".join([*entry.faults, *COMMON_FAULTS])
    print(f"faults: planted by --inject, to see a check fail\n  {faults}")


@launch_options()
@case_options
def command_(
    suite: SuiteArgument,
    chosen: LaunchChoice = NOTHING_CHOSEN,
    selected: CaseSelection = ALL_CASES,
    home: HomeOption = None,
) -> None:
    """Print the launch line of each job exactly as run, and each case's line by hand."""
    from spbench.engine.plan import plan

    print_commands(plan(request_from(suite, chosen=chosen, selected=selected, home=home)))


def print_commands(planned: RunPlan) -> None:
    """Print each job's launch line, and below it the line by hand of each of its cases."""
    from spbench.engine.commands import command_lines

    for line in command_lines(planned):
        print(line)


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")] = "bash",
) -> None:
    """Print the completion script of a shell: spbench completion bash > FILE."""
    if shell not in ("bash", "zsh", "fish"):
        raise UsageError(f"no completion for {shell!r}; there are bash, zsh and fish")
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    sys.stdout.write(
        get_completion_script(prog_name="spbench", complete_var="_SPBENCH_COMPLETE", shell=shell)
    )
    sys.stdout.write("\n")
