"""``spbench run``: a suite, from its file to a verdict."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.completing import complete_fault, complete_run
from spbench.cli.records.gate_options import (
    BaselineOption,
    FailOnOption,
    MaxUnjudgedOption,
    load_gate,
)
from spbench.cli.records.report import HtmlOption, JunitOption, ReportFiles
from spbench.cli.request import (
    ALL_CASES,
    CaseSelection,
    HomeOption,
    JsonOption,
    NoSamplesOption,
    OptionalSuiteArgument,
    QuietOption,
    SystemOption,
    VerboseOption,
    build_request,
    case_options,
    launch_options,
    print_progress,
    print_warning,
)
from spbench.cli.runs.reports import REPORT_OPTIONS, report_refusal, write_report
from spbench.cli.runs.views import line_writer, make_view
from spbench.errors import ExitCode, SpbenchError, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import Request, RunPlan
    from spbench.engine.run import EndedRun
    from spbench.record.runs.folder import RunFolder
    from spbench.record.state import RunState
    from spbench.report.document import ReportDocument
    from spbench.report.gate.baseline_gate import BaselineGate, GateResult

_REPLACED = (ExitCode.PASSED, ExitCode.FAILED, ExitCode.UNJUDGED)
"""The exit codes that become 4 if a report cannot be written."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(run)


@launch_options()
@case_options
def run(
    suite: OptionalSuiteArgument = None,
    chosen: LaunchChoice = DEFAULT_CHOICE,
    selected: CaseSelection = ALL_CASES,
    inject: Annotated[
        list[str] | None,
        typer.Option(
            "--inject",
            help="Inject a fault: slow (the last rank takes 5 times as long, 2 ms more at least),"
            " slow=1.5 (1.5 times as long) or one that `spbench benchmarks NAME` lists; the"
            " run must then fail (repeatable)",
            metavar="FAULT[@CASE]",
            autocompletion=complete_fault,
        ),
    ] = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="Print plain lines, also in a terminal")
    ] = False,
    json_target: JsonOption = None,
    no_samples: NoSamplesOption = False,
    junit: JunitOption = None,
    html: HtmlOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the launch commands and run nothing")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            help="Run the cases that an interrupted run did not reach",
            metavar="RUN",
            autocompletion=complete_run,
        ),
    ] = None,
    failed: Annotated[
        str | None,
        typer.Option(
            "--failed",
            help="Run the failed cases of a run again",
            metavar="RUN",
            autocompletion=complete_run,
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            help="Run a failed case again up to N times, at most 100",
            metavar="N",
            min=0,
            max=100,
        ),
    ] = 0,
    baseline: BaselineOption = None,
    fail_on: FailOnOption = None,
    max_unjudged: MaxUnjudgedOption = None,
    fail_on_flaky: Annotated[
        bool, typer.Option("--fail-on-flaky", help="Exit with 1 if a case passes only on a retry")
    ] = False,
    preflight: Annotated[
        bool, typer.Option("--preflight", help="Check all hosts before the run")
    ] = False,
    skip_bad_hosts: Annotated[
        bool,
        typer.Option("--skip-bad-hosts", help="Continue without unfit hosts, and exit with 1"),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="End the run after this time, such as 90s, 5m or 1h",
            metavar="TIME",
            show_default="none",
        ),
    ] = None,
    system: SystemOption = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Let other users read the run, as far as the umask allows"),
    ] = False,
    home: HomeOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a suite on MPI ranks."""
    from spbench.record.state import RunState

    verbosity = -1 if quiet else int(verbose)
    files = ReportFiles(junit, html)
    exit_code = ExitCode.PASSED
    try:
        files.check()
        request = replace(
            build_request(
                suite or Path(),
                chosen=chosen,
                selected=selected,
                home=home,
                system=system,
                argv=sys.argv[1:],
            ),
            inject=tuple(inject or ()),
            budget=None if budget is None else parse_time(budget),
            preflight=preflight,
            skip_bad_hosts=skip_bad_hosts,
            shared=shared,
            retries=retries,
            fail_on_flaky=fail_on_flaky,
        )
        targets = zip(REPORT_OPTIONS, (json_target, junit, html), strict=True)
        if dry_run and (given := [option for option, path in targets if path is not None]):
            raise UsageError(
                f"--dry-run runs nothing that {given[0]} could report; give one of the two"
            )
        if chosen.assume and not dry_run:
            raise UsageError(
                f"--assume {chosen.assume} shows launch lines of an MPI library that need not be "
                "here: use it with --dry-run or spbench command"
            )
        gate = load_gate(home, baseline, fail_on, max_unjudged)
        planned = _planned(request, resume, failed)
        if dry_run:
            _dry_run(planned)
            return
        on_stderr = json_target == "-"
        outcome = _execute(planned, headless, on_stderr, verbosity, RunState())
    except SpbenchError as error:
        report_refusal(error, json_target, files)
        raise
    gate_result, wrong = _judge(gate, outcome, on_stderr, verbosity)
    exit_code = gate_result.exit_code(outcome.exit_code) if gate_result else outcome.exit_code
    for sentence in [*wrong, *_write(outcome, gate_result, json_target, no_samples, files)]:
        sys.stderr.write(f"spbench: error: {sentence}\n")
        exit_code = ExitCode.ERROR if exit_code in _REPLACED else exit_code
    raise typer.Exit(exit_code)


def _dry_run(planned: RunPlan) -> None:
    """Print the launch lines of a run that could be started.

    Raises:
        SpbenchError: A case cannot run, or a launch cannot be made.
    """
    import asyncio

    from spbench.cli.suites import print_commands
    from spbench.engine.capacity import REMEDY, find_rejection
    from spbench.engine.estimate import estimate_lines, estimate_plan
    from spbench.engine.plan import check_networks

    for sentence in asyncio.run(check_networks(planned, print_progress)):
        print_progress(f"spbench: warning: {sentence}")
    if rejection := find_rejection(planned):
        print_progress(f"spbench: warning: this run would be rejected: {rejection}; {REMEDY}")
    for line in estimate_lines(estimate_plan(planned, planned.request.home)):
        print(f"# {line}")
    print_commands(planned)


def _planned(request: Request, resume: str | None, failed: str | None) -> RunPlan:
    """Return the plan of a suite, or of what a recorded run says."""
    from spbench.engine.plan import plan_run
    from spbench.engine.resume import plan_failed, plan_resumed

    given = request.suite != Path()
    if resume is None and failed is None:
        if not given:
            raise UsageError("name a suite, as in: spbench run suites/halo.yaml")
        return plan_run(request, print_warning)
    option = "--failed" if resume is None else "--resume"
    asks = (
        ("--failed", option == "--resume" and failed is not None),
        ("a suite", given),
        ("-k", request.keyword is not None),
        ("--case", bool(request.cases)),
        ("--set", bool(request.overrides)),
        ("--inject", bool(request.inject)),
        ("--system", request.system is not None),
    )
    if other := next((name for name, asked in asks if asked), None):
        raise UsageError(
            f"{option} takes suite and cases as the run recorded them; leave out {other}"
        )
    if resume is not None:
        return plan_resumed(request, resume)
    return plan_failed(request, str(failed))


def _judge(
    gate: BaselineGate | None, outcome: EndedRun, on_stderr: bool, verbosity: int
) -> tuple[GateResult | None, list[str]]:
    """Compare a run with a baseline and print the result; return also why that failed."""
    if gate is None:
        return None, []
    from spbench.cli.tables import output_width
    from spbench.report.recorded import load_run

    try:
        gate_result = gate.judge(load_run(outcome.folder))
    except SpbenchError as error:  # its reports are still written
        return None, [f"the run could not be compared with its baseline: {error}"]
    stream = sys.stderr if on_stderr else sys.stdout
    gate_result.print_to(line_writer(stream), quiet=verbosity < 0, width=output_width(stream))
    try:
        gate_result.note_failure(outcome.folder)
    except SpbenchError as error:
        return gate_result, [str(error)]
    return gate_result, []


def _write(
    outcome: EndedRun,
    gate_result: GateResult | None,
    json_target: str | None,
    no_samples: bool,
    files: ReportFiles,
) -> list[str]:
    """Write what the options ask for; return why some of it could not be written."""
    unwritten = []
    try:
        report = outcome.report
        if gate_result:
            report = report.with_head(gate_result.add_to_report(report.head))
        write_report(report, json_target, no_samples)
    except SpbenchError as error:
        unwritten.append(str(error))
    if any(files.targets()):
        from spbench.report.recorded import load_run

        run = gate_result.run if gate_result else load_run(outcome.folder)
        unwritten += files.write(run, gate_result)
    return unwritten


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run that was made for another command.

    Attributes:
        state: What its ranks have said.
    """

    folder: RunFolder
    state: RunState
    report: ReportDocument
    exit_code: ExitCode


def execute(
    planned: RunPlan, *, quiet: bool, verbose: bool, to_stderr: bool, headless: bool = False
) -> CompletedRun:
    """Run what another command needs; it is shown as ``spbench run`` shows it.

    Raises:
        SpbenchError: Nothing could be started.
    """
    from spbench.record.state import RunState

    state = RunState()
    outcome = _execute(planned, headless, to_stderr, -1 if quiet else int(verbose), state)
    return CompletedRun(outcome.folder, state, outcome.report, outcome.exit_code)


def _execute(
    planned: RunPlan, headless: bool, on_stderr: bool, verbosity: int, state: RunState
) -> EndedRun:
    import asyncio

    from spbench.engine.run import Run

    view = make_view(planned, state, headless, on_stderr, verbosity)
    say = print_progress if verbosity >= 0 else _nobody
    try:
        outcome = asyncio.run(Run(planned, state, view, say).execute())
        with suppress(OSError):  # the terminal may have gone
            view.finish(outcome.folder.report_line)
    finally:
        with suppress(OSError):
            view.close()
    return outcome


def _nobody(_: str) -> None:
    """Say nothing: ``--quiet`` wants the verdict alone."""


def parse_time(text: str) -> float:
    """Read a time: ``90``, ``90s``, ``5m``, ``1.5h``.

    Raises:
        UsageError: It is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget {text}: write a time such as 90, 90s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
