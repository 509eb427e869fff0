"""``spbench scale``: a suite on several numbers of ranks, and its efficiency."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spbench.cli.request import (
    ALL_CASES,
    STDOUT,
    CaseSelection,
    HomeOption,
    QuietOption,
    SuiteArgument,
    SystemOption,
    VerboseOption,
    build_request,
    case_options,
    launch_options,
    print_warning,
    reject_folder,
)
from spbench.errors import UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import Request
    from spbench.report.scaling import Scaling


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(scale)


@launch_options("assume")
@case_options
def scale(
    suite: SuiteArgument,
    np: Annotated[
        str | None,
        typer.Option(
            "--np",
            help="Rising numbers of ranks, such as 1,2,4",
            metavar="LIST",
            show_default="those of the suite",
        ),
    ] = None,
    strong: Annotated[
        bool | None,
        typer.Option("--strong/--weak", help="Keep the total work, or the work of each rank"),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", help="Parameter that grows with the number of ranks", metavar="PARAMETER"
        ),
    ] = None,
    worth: Annotated[
        float,
        typer.Option(
            "--worth",
            help="Least speed-up of an added rank that is worthwhile, from 0 to 1",
            metavar="SHARE",
            min=0.0,
            max=1.0,
        ),
    ] = 0.5,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    case_selection: CaseSelection = ALL_CASES,
    headless: Annotated[
        bool, typer.Option("--headless", help="Print plain lines, also in a terminal")
    ] = False,
    json_target: Annotated[
        str | None,
        typer.Option("--json", help="Write the scaling as JSON; - is stdout", metavar="FILE"),
    ] = None,
    system: SystemOption = None,
    home: HomeOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a suite on several numbers of ranks.

    Prints speed-up and efficiency, and the number from which more ranks are not worthwhile.
    """
    reject_folder("--json", json_target)
    request = build_request(
        suite,
        launch_choice=launch_choice,
        case_selection=case_selection,
        home=home,
        system=system,
        argv=sys.argv[1:],
    )
    scaling_key = _make_scaling_key(np, strong, by)
    if scaling_key is not None:
        request = _add_scaling_key(request, scaling_key)
    from spbench.cli.runs.execution import execute_for_command, make_line_writer
    from spbench.engine.plan import plan_run
    from spbench.report.recorded import load_run
    from spbench.report.scaling import compute_scalings

    planned = plan_run(request, print_warning)
    if not any(case.scaling_series for job in planned.jobs for case in job.cases):
        raise UsageError(f"{suite} does not say on how many ranks: give --np 1,2,4")
    on_stderr = json_target == STDOUT
    completed = execute_for_command(
        planned, quiet=quiet, verbose=verbose, to_stderr=on_stderr, headless=headless
    )
    scalings = compute_scalings(load_run(completed.folder), worth)
    _print_scalings(scalings, make_line_writer(sys.stderr if on_stderr else sys.stdout))
    if json_target is not None:
        _write_json(scalings, json_target)
    raise typer.Exit(completed.exit_code)


def _make_scaling_key(
    np: str | None, strong: bool | None, parameter: str | None
) -> dict[str, Any] | None:
    """Return the key ``scale`` for the cases; None for that of the suite.

    Raises:
        UsageError: The ranks are invalid, or neither strong nor weak is given.
    """
    if np is None:
        if strong is not None or parameter is not None:
            raise UsageError("--strong, --weak and --by say how ranks grow: give --np 1,2,4 too")
        return None
    try:
        counts = [int(part) for part in np.split(",")]
    except ValueError:
        raise UsageError(f"--np {np}: write numbers of ranks, as 1,2,4") from None
    if strong is None:
        raise UsageError("say what stays the same: the work (--strong), or a rank's (--weak)")
    key = {"np": counts, "work": "strong" if strong else "weak"}
    return key if parameter is None else key | {"by": parameter}


def _add_scaling_key(request: Request, key: dict[str, Any]) -> Request:
    """Return the request with the key ``scale`` in its selected cases."""
    key_text = json.dumps(key)
    names = _find_selected_entries(request)
    overrides = [f"scale={key_text}"] if names is None else [f"scale.{n}={key_text}" for n in names]
    return replace(request, overrides=(*request.overrides, *overrides))


def _find_selected_entries(request: Request) -> list[str] | None:
    """Return the names of the entries with selected cases; None for all."""
    if request.keyword is None and not request.cases:
        return None
    from spbench.suites.loader import load_suite_file
    from spbench.suites.select import select_matching, select_named

    cases = load_suite_file(request.suite, request.overrides).cases
    cases = select_named(cases, request.cases) if request.cases else cases
    cases = select_matching(cases, request.keyword) if request.keyword is not None else cases
    return list(dict.fromkeys(case.name for case in cases))


def _print_scalings(scalings: Sequence[Scaling], write: Callable[[str], None]) -> None:
    from spbench.record.number_formatting import replace_controls
    from spbench.report.scaling import (
        SCALING_COLUMNS,
        SCALING_NUMBER_COLUMNS,
        scaling_remarks,
        scaling_rows,
    )
    from spbench.report.text_tables import align_columns

    write("")
    for line in align_columns([SCALING_COLUMNS, *scaling_rows(scalings)], SCALING_NUMBER_COLUMNS):
        write(replace_controls(line))
    for remark in scaling_remarks(scalings):
        write(replace_controls(remark))


def _write_json(scalings: Sequence[Scaling], target: str) -> None:
    from spbench.cli.runs.execution import make_line_writer
    from spbench.record.runs.files import write_file
    from spbench.report.scaling import scaling_objects

    text = json.dumps(scaling_objects(scalings), indent=1, allow_nan=False)
    if target == STDOUT:
        # If the reader has gone, the exit code still shows the status of the run.
        make_line_writer(sys.stdout)(text)
    else:
        write_file(Path(target), f"{text}\n")
