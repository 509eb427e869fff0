"""``spbench profile``: measure a model's layers for ``spbench plan``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spbench.cli.planning.arguments import parse_counts
from spbench.cli.request import (
    STDOUT,
    CaseSelection,
    HomeOption,
    OutputOption,
    QuietOption,
    SetOption,
    VerboseOption,
    launch_options,
)
from spbench.errors import UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(profile)


@launch_options("exclude_hosts", "assume")
def profile(
    model: Annotated[
        str,
        typer.Argument(
            help="resnet, amoebanet, or MODULE:CALLABLE of your own network", metavar="MODEL"
        ),
    ] = "resnet",
    batch_sizes: Annotated[
        str,
        typer.Option("--batch-sizes", help="Batch sizes to measure, rising", metavar="LIST"),
    ] = "1,2,4",
    output: OutputOption = STDOUT,
    busy: Annotated[
        bool, typer.Option("--busy", help="Keep all other slots busy with the same work")
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--np",
            help="With --busy: number of ranks",
            metavar="N",
            min=2,
            show_default="all slots",
        ),
    ] = None,
    overrides: SetOption = None,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    home: HomeOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Measure the layers of a model for `spbench plan`."""
    from spbench.cli.request import build_request, reject_folder, write_output
    from spbench.cli.runs.execution import execute_for_command
    from spbench.engine.plan import plan_suite
    from spbench.planner.profile.json_file import write_profile_json
    from spbench.planner.profile.measurement import (
        load_profile_suite,
        read_measured_profile,
        render_profile_suite,
    )

    reject_folder("--output", output)
    if ranks is not None and not busy:
        raise UsageError("--np is the number of busy ranks; add --busy")
    sizes = parse_counts("--batch-sizes", batch_sizes)
    path = Path(f"profile of {model}")
    request = build_request(
        path,
        launch_choice=launch_choice,
        case_selection=CaseSelection(overrides=overrides),
        home=home,
        argv=sys.argv[1:],
    )
    text = render_profile_suite(model, sizes, ranks if busy else 1)
    suite = load_profile_suite(request, text)
    planned = plan_suite(request, suite)
    completed = execute_for_command(
        planned, quiet=quiet, verbose=verbose, to_stderr=output == STDOUT
    )
    if completed.exit_code:
        raise typer.Exit(completed.exit_code)
    measured = read_measured_profile(completed.report.to_json())
    write_output(write_profile_json(measured), output)
    if output != STDOUT:
        batch_sizes_text = ", ".join(map(str, sizes))
        print(f"{output}: {len(measured.layers)} layers at batch sizes {batch_sizes_text}")
