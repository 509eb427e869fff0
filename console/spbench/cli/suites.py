"""Commands that read suites and the catalog and run nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import (
    ALL_CASES,
    CaseSelection,
    HomeOption,
    SetOption,
    SuiteArgument,
    build_request,
    case_options,
    check_system,
    launch_options,
)
from spbench.errors import UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import RunPlan


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (init, validate, schema, command_):
        app.command(name=command.__name__.rstrip("_"))(command)


def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write into", metavar="FOLDER", show_default=".")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace existing files")] = False,
) -> None:
    """Write the shipped suites and hostfiles into a folder."""
    from spbench.suites.shipped import copy_shipped
    from spbench_core.number_text import format_quantity

    copied = copy_shipped(folder, force=force)
    suites = folder / "suites"
    hostfiles = folder / "hostfiles"
    print(f"wrote {format_quantity(len(copied.copied), 'file')} into {suites} and {hostfiles}")
    if copied.existing:
        names = ", ".join(str(path.relative_to(folder)) for path in copied.existing)
        print(f"kept as before, --force replaces: {names}")
    location = "" if folder == Path() else f", in {folder},"
    print(f"next: spbench run {suites / 'halo.yaml'}; or{location} spbench tui to change one")


def validate(
    suites: Annotated[
        list[Path], typer.Argument(help="YAML files of suites, or shipped:NAME", metavar="SUITE")
    ],
    overrides: SetOption = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            help="Report expectations without a reference for this system",
            metavar="NAME",
            callback=check_system,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List the cases")] = False,
) -> None:
    """Check suites, and print all errors at once."""
    from spbench.cli.validate import validate as validate_suites

    if code := validate_suites(suites, overrides or (), system, verbose=verbose):
        raise typer.Exit(code)


def schema(
    kind: Annotated[
        str,
        typer.Argument(
            help="suite, report, baseline, plan, cluster, profile or site", metavar="KIND"
        ),
    ] = "suite",
    path: Annotated[
        bool, typer.Option("--path", help="Print the path of the schema of suites, for editors")
    ] = False,
) -> None:
    """Print the JSON Schema of suites or of other files."""
    from spbench.suites.settings import build_json_schema

    if path:
        print(_published_schema(kind))
        return
    if kind == "suite":
        from spbench.suites.json_schema import build_suite_schema

        document = build_suite_schema()
    elif kind == "report":
        from spbench.report.model import report_schema

        document = report_schema()
    elif kind == "baseline":
        from spbench.report.baselines.model import baseline_schema

        document = baseline_schema()
    elif kind == "plan":
        from spbench.planner.output.plan_json import plan_json_schema

        document = plan_json_schema()
    elif kind == "cluster":
        from spbench.planner.cluster.cluster_file import ClusterFile

        document = build_json_schema(ClusterFile)
    elif kind == "profile":
        from spbench.planner.profile.json_reader import ProfileFile

        document = build_json_schema(ProfileFile)
    elif kind == "site":
        from spbench.suites.site_file import SiteFile

        document = build_json_schema(SiteFile)
    else:
        kinds = "suite, report, baseline, plan, cluster, profile and site"
        raise UsageError(f"there is no schema of {kind!r}; there are {kinds}")
    print(json.dumps(document, indent=1))


def _published_schema(kind: str) -> Path:
    from spbench.suites.json_schema import SCHEMA_FILE

    if kind != "suite":
        raise UsageError(f"--path is for suites: the schema of {kind!r} is no file, only printed")
    return SCHEMA_FILE


@launch_options()
@case_options
def command_(
    suite: SuiteArgument,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    case_selection: CaseSelection = ALL_CASES,
    home: HomeOption = None,
) -> None:
    """Print the launch commands of a suite, exactly as run uses them."""
    from spbench.engine.plan import plan_run

    print_commands(
        plan_run(
            build_request(
                suite, launch_choice=launch_choice, case_selection=case_selection, home=home
            )
        )
    )


def print_commands(planned: RunPlan) -> None:
    """Print each job's launch line, and the standalone line of each of its cases."""
    from spbench.engine.commands import format_commands

    for line in format_commands(planned):
        print(line)
