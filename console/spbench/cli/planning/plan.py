"""``spbench plan``: the best parallel plan of a profile on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from spbench.cli.error_reporting import print_to_stderr
from spbench.cli.planning.arguments import (
    check_choice,
    find_requested_cluster,
    parse_batch_sizes,
)
from spbench.cli.request import (
    STDOUT,
    HomeOption,
    OutputOption,
    QuietOption,
    VerboseOption,
    build_request,
    launch_options,
    reject_folder,
    write_output,
)
from spbench.errors import ExitCode, SuiteError, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import Request
    from spbench.planner.cluster.machines import Cluster
    from spbench.planner.errors import PlannerError
    from spbench.planner.output.emission import EmittedSuite
    from spbench.planner.plans import Mode, Plan
    from spbench.planner.profile.layers import Profile

FORMATS = ("text", "json", "csv", "dot", "hpgo")
TIMELINES = ("text", "svg", "trace")
MODES = ("best", "hpgo")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(plan)


@launch_options("exclude_hosts", "assume")
def plan(
    profile: Annotated[
        Path,
        typer.Argument(
            help="Profile of `spbench profile`, or a torchgraph file", metavar="PROFILE"
        ),
    ],
    global_batch_size: Annotated[
        str,
        typer.Option(
            "--global-batch-size",
            help="Samples of a step; a list such as 32,64:4096:64 (first:last:step) plans each",
            metavar="N",
        ),
    ],
    profile_batch_size: Annotated[
        int | None,
        typer.Option(
            "--profile-batch-size",
            help="Batch size of the profile to use, if it has several",
            metavar="N",
        ),
    ] = None,
    machines: Annotated[
        str | None,
        typer.Option(
            "--machines",
            help="Machines times devices, such as 4x8; or the number of devices up to the end of "
            "each machine, such as 8,12 for machines of 8 and 4",
            metavar="MxD",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="YAML file of a cluster, or dapple-a, dapple-b, dapple-c",
            metavar="FILE",
        ),
    ] = None,
    cluster_from: Annotated[
        str | None,
        typer.Option("--cluster-from", help="Run of link.pingpong on the cluster", metavar="RUN"),
    ] = None,
    micro_batch_size: Annotated[
        int | None,
        typer.Option(
            "--micro-batch-size",
            help="Samples of a micro-batch, which the devices of a stage share",
            metavar="N",
            show_default="chosen by the plan",
        ),
    ] = None,
    optimizer_memory_scaling: Annotated[
        float,
        typer.Option(
            "--optimizer-memory-scaling",
            help="Memory for parameters and optimizer, in sizes of the parameters",
            metavar="FACTOR",
        ),
    ] = 2.0,
    peak_activation_bytes: Annotated[
        float | None,
        typer.Option(
            "--peak-activation-bytes",
            help="Memory for the activations of one sample",
            metavar="BYTES",
            show_default="from the profile",
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="best, or hpgo for the planner of DAPPLE", metavar="MODE")
    ] = "best",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            help="Processes, if there are several batch sizes",
            metavar="N",
            show_default="$RAYON_NUM_THREADS or all cores",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text, json, csv, dot or hpgo",
            metavar="FORMAT",
            show_default="text",
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline",
            help="Draw a step as text, svg or trace (for Perfetto)",
            metavar="FORMAT",
        ),
    ] = None,
    output: OutputOption = STDOUT,
    emit: Annotated[
        Path | None,
        typer.Option("--emit", help="Write a suite that runs the plan", metavar="FILE"),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Run the plan, and compare predicted with measured times"),
    ] = False,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    home: HomeOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Divide a model among devices: stages, replicas, micro-batches."""
    from spbench.planner.errors import PlannerError
    from spbench.planner.planning import find_default_jobs, plan_many
    from spbench.planner.profile.files import load_profile
    from spbench.record.runs.folder import find_home

    format_ = _check_choices(format_, mode, timeline)
    _check_run_options(launch_choice, verify=verify, quiet=quiet, verbose=verbose)
    reject_folder("--output", output)
    reject_folder("--emit", emit)
    batches = parse_batch_sizes(global_batch_size)
    takes_one_batch = emit is not None or verify or timeline is not None or format_ == "dot"
    if len(batches) > 1 and takes_one_batch:
        raise UsageError("--emit, --verify, --timeline and --format dot take one batch size")
    if len(batches) == 1 and jobs is not None and jobs > 1:
        raise UsageError("--jobs plans several batch sizes at once; give them, or leave it out")

    model = load_profile(profile, profile_batch_size)
    devices = find_requested_cluster(machines, cluster, cluster_from, find_home(home, os.environ))
    if sys.stderr.isatty():  # large clusters take most of a minute
        sys.stderr.write(
            f"planning {model.name} on {devices.name}, devices: {devices.device_count}\n"
        )
    plans = plan_many(
        model,
        devices,
        batches,
        jobs=find_default_jobs(os.environ) if jobs is None else jobs,
        micro_batch_size=micro_batch_size,
        mode=cast("Mode", mode),
        optimizer_memory_scaling=optimizer_memory_scaling,
        peak_activation_bytes=peak_activation_bytes,
    )
    errors = [error for error in plans if isinstance(error, PlannerError)]
    if len(errors) == len(plans):
        raise errors[0]

    _write_plans(batches, plans, devices, format_=format_, timeline=timeline, output=output)
    for error in errors:
        sys.stderr.write(f"spbench: error: {error}\n")
    if errors:
        raise typer.Exit(ExitCode.USAGE)
    first = plans[0]
    if (emit is not None or verify) and not isinstance(first, PlannerError):
        suite = _emit_suite(first, model, devices, emit)
        if verify:
            request = build_request(
                suite.suite.path, launch_choice=launch_choice, home=home, argv=sys.argv[1:]
            )
            _run_and_compare(first, suite, request, quiet=quiet, verbose=verbose)


def _check_choices(format_: str | None, mode: str, timeline: str | None) -> str | None:
    """Check options with a fixed set of values; return the format by its current name."""
    if format_ == "table":
        print_to_stderr("warning: --format table is now --format text")
        format_ = "text"
    check_choice("--format", format_ or "text", FORMATS)
    check_choice("--mode", mode, MODES)
    if timeline is not None:
        check_choice("--timeline", timeline, TIMELINES)
    if timeline is not None and format_ is not None:
        raise UsageError("--format is for the plan and --timeline prints a step; give one of them")
    return format_


def _check_run_options(
    launch_choice: LaunchChoice, *, verify: bool, quiet: bool, verbose: bool
) -> None:
    """Reject options for running the plan if it is not run."""
    options = {
        "--hosts": launch_choice.hosts,
        "--hostfile": launch_choice.hostfile,
        "--launcher": launch_choice.launcher,
        "--console-address": launch_choice.console_address,
        "--port-range": launch_choice.port_range,
        "--oversubscribe": launch_choice.oversubscribe,
        "--quiet": quiet,
        "--verbose": verbose,
    }
    used = [option for option, value in options.items() if value not in (None, False)]
    if used and not verify:
        raise UsageError(f"{used[0]} is for running the plan; give --verify as well")


def _write_plans(
    batches: Sequence[int],
    plans: Sequence[Plan | PlannerError],
    cluster: Cluster,
    *,
    format_: str | None,
    timeline: str | None,
    output: str,
) -> None:
    """Write the plans in a format, or the step of a single plan as a timeline."""
    from spbench.cli.planning.output import render_plans, render_step
    from spbench.cli.text_layout import output_width
    from spbench.planner.plans import Plan
    from spbench.report.text_tables import PIPE_WIDTH

    first = plans[0]
    if timeline is not None and isinstance(first, Plan):
        write_output(render_step(first, timeline), output)
        return
    width = output_width() if output == STDOUT else PIPE_WIDTH
    write_output(render_plans(batches, plans, format_ or "text", cluster, width), output)


def _emit_suite(plan: Plan, profile: Profile, cluster: Cluster, path: Path | None) -> EmittedSuite:
    """Return the suite of a plan; write it to `path` if that is set."""
    from spbench.planner.output.emission import emit_suite
    from spbench.record.runs.files import write_file

    suite = emit_suite(plan, profile, cluster, path or Path("plan.yaml"))
    if path is not None:
        write_file(path, suite.text)
        ranks = format_quantity(suite.rank_count, "rank")
        sys.stderr.write(f"{path}: {ranks}; run it: spbench run {path}\n")
    return suite


def _run_and_compare(
    plan: Plan, suite: EmittedSuite, request: Request, *, quiet: bool, verbose: bool
) -> None:
    """Run a plan, and print predicted and measured times."""
    from spbench.cli.planning.output import render_verification
    from spbench.cli.runs.execution import execute_for_command
    from spbench.cli.text_layout import output_width
    from spbench.engine.plan import build_settings, plan_suite
    from spbench.planner.output.verification import compare_with_run
    from spbench.suites.loader import load_suite_text

    try:
        loaded = load_suite_text(suite.text, suite.suite.path, build_settings(request))
    except SuiteError as error:
        # The emitted suite has no errors, so these are about launch options.
        messages = (diagnostic.message for diagnostic in error.diagnostics)
        raise UsageError("; ".join(messages)) from None
    completed = execute_for_command(
        plan_suite(request, loaded), quiet=quiet, verbose=verbose, to_stderr=True
    )
    if completed.exit_code:
        raise typer.Exit(completed.exit_code)
    [case] = completed.state.cases.values()
    for line in render_verification(plan, compare_with_run(plan, case), output_width()):
        print(line)
