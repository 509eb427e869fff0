"""``spbench run``: run a suite and judge its cases."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spbench.cli.records.gate_options import (
    BaselineOption,
    FailOnOption,
    MaxUnjudgedOption,
    load_gate,
)
from spbench.cli.records.report import HtmlOption, JunitOption, ReportFiles
from spbench.cli.request import (
    ALL_CASES,
    STDOUT,
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
from spbench.cli.runs.execution import execute_plan, make_line_writer
from spbench.cli.runs.reports import REPORT_OPTIONS, report_rejection, write_report
from spbench.cli.value_completions import complete_fault, complete_run
from spbench.errors import Advice, ExitCode, SpbenchError, UsageError
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice

if TYPE_CHECKING:
    from spbench.engine.plan import Request, RunPlan
    from spbench.engine.run import EndedRun
    from spbench.report.gate.baseline_gate import BaselineGate, GateResult

_REPLACED_BY_ERROR = (ExitCode.PASSED, ExitCode.FAILED, ExitCode.UNJUDGED)
"""The exit codes that become `ExitCode.ERROR` if a report cannot be written."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(run)


@launch_options()
@case_options
def run(
    suite: OptionalSuiteArgument = None,
    launch_choice: LaunchChoice = DEFAULT_CHOICE,
    case_selection: CaseSelection = ALL_CASES,
    inject: Annotated[
        list[str] | None,
        typer.Option(
            "--inject",
            help="Inject a fault: slow (the last rank takes 5 times as long, at least 2 ms longer),"
            " slow=1.5 (1.5 times as long) or one that `spbench benchmarks NAME` lists; `,rank=0`"
            " plants it in rank 0 instead of the last; the run must then fail (repeatable)",
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
            help="Run the failed and cancelled cases of a run again",
            metavar="RUN",
            autocompletion=complete_run,
        ),
    ] = None,
    without_faults: Annotated[
        bool,
        typer.Option("--without-faults", help="With --failed, do not plant the run's faults again"),
    ] = False,
    without_cancelled: Annotated[
        bool,
        typer.Option("--without-cancelled", help="With --failed, leave out the cancelled cases"),
    ] = False,
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
    on_stderr = json_target == STDOUT
    files = ReportFiles(junit, html)
    try:
        files.check()
        request = replace(
            build_request(
                suite or Path(),
                launch_choice=launch_choice,
                case_selection=case_selection,
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
        _check_dry_run(dry_run, launch_choice, (json_target, junit, html))
        gate = load_gate(home, baseline, fail_on, max_unjudged)
        planned = _plan_run(
            request,
            resume,
            failed,
            with_faults=not without_faults,
            with_cancelled=not without_cancelled,
        )
        if dry_run:
            _print_dry_run(planned)
            return
        ended = execute_plan(
            planned, RunState(), headless=headless, on_stderr=on_stderr, verbosity=verbosity
        )
    except SpbenchError as error:
        report_rejection(error, json_target, files)
        raise

    gate_result, errors = _judge(gate, ended, on_stderr, verbosity)
    errors += _write_reports(ended, gate_result, json_target, no_samples, files)
    exit_code = gate_result.exit_code(ended.exit_code) if gate_result else ended.exit_code
    for error_message in errors:
        sys.stderr.write(f"spbench: error: {error_message}\n")
    if errors and exit_code in _REPLACED_BY_ERROR:
        exit_code = ExitCode.ERROR
    raise typer.Exit(exit_code)


def _check_dry_run(
    dry_run: bool, launch_choice: LaunchChoice, report_paths: tuple[str | None, ...]
) -> None:
    """Reject options that need a run if there is none, and the other way round."""
    reports = zip(REPORT_OPTIONS, report_paths, strict=True)
    report_options = [option for option, path in reports if path is not None]
    if dry_run and report_options:
        raise UsageError(
            f"--dry-run runs nothing that {report_options[0]} could report; give one of the two"
        )
    if launch_choice.assume and not dry_run:
        raise UsageError(
            f"--assume {launch_choice.assume} shows launch lines of an MPI library that need not "
            f"be here: {Advice.ONLY_SHOW_LINES.value}"
        )


def _print_dry_run(planned: RunPlan) -> None:
    """Print the estimate and the launch lines of a run.

    Raises:
        SpbenchError: A case cannot run, or a launch cannot be made.
    """
    import asyncio

    from spbench.cli.suites import print_commands
    from spbench.engine.capacity import REMEDY, find_rejection
    from spbench.engine.estimate import estimate_plan
    from spbench.engine.plan import check_networks
    from spbench.engine.run_estimate import render_estimate

    for message in asyncio.run(check_networks(planned, print_progress)):
        print_warning(message)
    if rejection := find_rejection(planned):
        print_warning(f"this run would be rejected: {rejection}; {REMEDY}")
    for line in render_estimate(estimate_plan(planned, planned.request.home)):
        print(f"# {line}")
    print_commands(planned)


def _plan_run(
    request: Request,
    resume: str | None,
    failed: str | None,
    *,
    with_faults: bool,
    with_cancelled: bool,
) -> RunPlan:
    """Return the plan of a suite, or of the cases left or failed in a recorded run."""
    from spbench.engine.plan import plan_run
    from spbench.engine.resume import plan_failed, plan_resumed

    if failed is None and not with_faults:
        raise UsageError("--without-faults needs --failed RUN; leave out --inject otherwise")
    if failed is None and not with_cancelled:
        raise UsageError("--without-cancelled needs --failed RUN")
    has_suite = request.suite != Path()
    if resume is None and failed is None:
        if not has_suite:
            raise UsageError("name a suite, as in: spbench run suites/halo.yaml")
        return plan_run(request, print_warning)
    option = "--failed" if resume is None else "--resume"
    allowed_key = "repeat" if option == "--failed" else None
    overrides = [text for text in request.overrides if text.partition("=")[0] != allowed_key]
    conflicts = (
        ("--failed", option == "--resume" and failed is not None),
        ("a suite", has_suite),
        ("-k", request.keyword is not None),
        ("--case", bool(request.cases)),
        *((f"--set {text}", True) for text in overrides),
        ("--inject", bool(request.inject)),
        ("--system", request.system is not None),
    )
    if conflict := next((name for name, is_given in conflicts if is_given), None):
        raise UsageError(
            f"{option} takes suite and cases as the run recorded them; leave out {conflict}"
        )
    if resume is not None:
        return plan_resumed(request, resume)
    return plan_failed(request, str(failed), with_faults=with_faults, with_cancelled=with_cancelled)


def _judge(
    gate: BaselineGate | None, ended: EndedRun, on_stderr: bool, verbosity: int
) -> tuple[GateResult | None, list[str]]:
    """Compare a run with a baseline and print the result; return errors as well."""
    if gate is None:
        return None, []
    from spbench.cli.text_layout import output_width
    from spbench.report.recorded import load_run

    try:
        gate_result = gate.judge(load_run(ended.folder))
    except SpbenchError as error:
        # The caller still writes the reports of the run.
        return None, [f"the run could not be compared with its baseline: {error}"]
    stream = sys.stderr if on_stderr else sys.stdout
    gate_result.print_to(make_line_writer(stream), quiet=verbosity < 0, width=output_width(stream))
    try:
        gate_result.note_failure(ended.folder)
    except SpbenchError as error:
        return gate_result, [str(error)]
    return gate_result, []


def _write_reports(
    ended: EndedRun,
    gate_result: GateResult | None,
    json_target: str | None,
    no_samples: bool,
    files: ReportFiles,
) -> list[str]:
    """Write the requested reports; return a message for each that failed."""
    errors = []
    try:
        report = ended.report
        if gate_result:
            report = report.replace_head(gate_result.add_to_report(report.head))
        write_report(report, json_target, no_samples)
    except SpbenchError as error:
        errors.append(str(error))
    if any(files.targets()):
        from spbench.report.recorded import load_run

        run = gate_result.run if gate_result else load_run(ended.folder)
        errors += files.write(run, gate_result)
    return errors


def parse_time(text: str) -> float:
    """Return the seconds of a time: ``90``, ``90s``, ``5m``, ``1.5h``.

    Raises:
        UsageError: The text is not a time above 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--budget {text}: write a time such as 90, 90s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
