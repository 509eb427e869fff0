"""Batch jobs: ``spbench script``, ``submit`` and ``collect``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.request import (
    CASE_OPTIONS,
    STDOUT,
    CaseSelection,
    HomeOption,
    JsonOption,
    LauncherOption,
    NoSamplesOption,
    QuietOption,
    SuiteArgument,
    SystemOption,
    VerboseOption,
    build_request,
    group_options,
)
from spbench.launch.choice import LaunchChoice
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.batch.job import BatchJob

_OPTIONS = {
    "scheduler": Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            help="slurm, pbs, lsf or flux",
            metavar="NAME",
            show_default="the installed one",
        ),
    ],
    "site": Annotated[
        Path | None,
        typer.Option(
            "--site", help="File with batch settings of this cluster (see docs)", metavar="FILE"
        ),
    ],
    "output": Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="New folder for the job, on a disk that all nodes share",
            metavar="FOLDER",
            show_default="one under .spbench/batch",
        ),
    ],
    "launcher": LauncherOption,
    **CASE_OPTIONS,
    "system": SystemOption,
    "home": HomeOption,
}


@dataclass(frozen=True, slots=True)
class BatchChoice(CaseSelection):
    """The options of a batch job."""

    scheduler: str | None = None
    site: Path | None = None
    output: Path | None = None
    launcher: str | None = None
    system: str | None = None
    home: Path | None = None


_NO_CHOICE = BatchChoice()
batch_options = group_options("batch", BatchChoice, _OPTIONS)
"""A decorator that adds the options of a batch job to a command, as ``batch``."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (script, submit, collect):
        app.command()(command)


@batch_options
def script(
    suite: SuiteArgument,
    batch: BatchChoice = _NO_CHOICE,
) -> None:
    """Write a suite as a batch job, and print the path of its script."""
    job = _write_job(suite, batch)
    sys.stderr.write(f"{_describe_job(job)}: submit it, then spbench collect {job.folder}\n")
    print(job.script)


@batch_options
def submit(
    suite: SuiteArgument,
    batch: BatchChoice = _NO_CHOICE,
) -> None:
    """Write and submit a batch job, and print its number and folder."""
    from spbench.batch.job import submit_job

    job = _write_job(suite, batch)
    number = submit_job(job, os.environ)
    sys.stderr.write(f"{_describe_job(job)}: when it has ended, spbench collect {job.folder}\n")
    print(f"{number} {job.folder}")


def _write_job(suite: Path, batch: BatchChoice) -> BatchJob:
    from spbench.batch.job import write_batch
    from spbench.batch.launches import BatchRequest
    from spbench.cli.error_reporting import print_to_stderr

    launch_choice = LaunchChoice(launcher=batch.launcher)
    run_request = build_request(
        suite,
        launch_choice=launch_choice,
        case_selection=batch,
        home=batch.home,
        system=batch.system,
        argv=sys.argv[1:],
    )
    request = BatchRequest(run_request, batch.scheduler, batch.site)
    job = write_batch(
        request, batch.output, lambda text: print_to_stderr(f"spbench: warning: {text}")
    )
    if job.unused_hostfile:
        sys.stderr.write("note: launch.hostfile is not used: the allocation is the hosts\n")
    return job


def _describe_job(job: BatchJob) -> str:
    jobs = format_quantity(job.num_jobs, "job")
    return f"{format_quantity(job.num_cases, 'case')} in {jobs} for {job.scheduler.name}"


def collect(
    folder: Annotated[Path, typer.Argument(help="Folder of a batch job", metavar="FOLDER")],
    home: HomeOption = None,
    json_target: JsonOption = None,
    no_samples: NoSamplesOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Make a run of the results of a batch job, ended or not."""
    from spbench.batch.collect import collect as collect_results
    from spbench.cli.runs.execution import make_line_writer
    from spbench.cli.runs.lines import LineView
    from spbench.cli.runs.reports import report_rejection, write_report
    from spbench.cli.text_layout import output_width
    from spbench.errors import SpbenchError
    from spbench.record.runs.folder import find_home
    from spbench.record.state import RunState

    state = RunState()
    stream = sys.stderr if json_target == STDOUT else sys.stdout
    view = LineView(
        state, make_line_writer(stream), -1 if quiet else int(verbose), output_width(stream)
    )
    try:
        outcome = collect_results(folder, find_home(home, os.environ), state, view)
    except SpbenchError as error:
        report_rejection(error, json_target)
        raise
    view.finish(outcome.folder.report_line)
    write_report(outcome.report, json_target, no_samples)
    raise typer.Exit(outcome.exit_code)
