"""The text in the editor as the loader reads it: errors, or cases and the plan of their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spbench.engine.capacity import find_rejection
from spbench.engine.commands import JobCommand, build_case_command
from spbench.engine.estimate import NO_ESTIMATE, RunEstimate, estimate_plan
from spbench.engine.plan import Request, RunPlan, build_settings, plan_suite
from spbench.errors import Diagnostic, SpbenchError, UsageError
from spbench.launch.devices import find_shortage
from spbench.launch.jobs import select_cases
from spbench.record.runs.folder import working_folder
from spbench.suites.case import Case, Suite
from spbench.suites.edit.check import CheckedText, check_text
from spbench.suites.edit.outline import EntryLines, Outline
from spbench.suites.loader import load_suite_text


@dataclass(frozen=True, slots=True)
class ParsedSuite:
    """A text as the loader reads it.

    Attributes:
        spans: The lines of its case entries; empty where it is no YAML.
        plan: Its jobs; None where there are none.
        refusal: Why its jobs cannot be planned, in one sentence.
    """

    text: str
    examined: CheckedText
    spans: Sequence[EntryLines] = ()
    plan: RunPlan | None = None
    plan_error: str = ""

    @property
    def problems(self) -> Sequence[Diagnostic]:
        """The errors of the text, in the order of their places."""
        return self.examined.diagnostics

    @property
    def cases(self) -> Sequence[Case]:
        """The cases; none where the text has errors."""
        return self.examined.suite.cases if self.examined.suite else ()


def parse_text(text: str, request: Request) -> ParsedSuite:
    """Return what a text comes to, for the hosts and the launcher of a request."""
    examined = check_text(text, request.suite)
    spans = _spans(text)
    if examined.suite is None:
        return ParsedSuite(text, examined, spans)
    try:
        settings = build_settings(request)
        suite = load_suite_text(text, request.suite, settings) if settings else examined.suite
        return ParsedSuite(text, examined, spans, plan_suite(request, suite))
    except SpbenchError as error:
        return ParsedSuite(text, examined, spans, plan_error=str(error))


def _spans(text: str) -> Sequence[EntryLines]:
    try:
        return Outline(text).spans
    except UsageError:
        return ()


def find_rejected(reading: ParsedSuite, cases: Sequence[str] = ()) -> str | None:
    """Return why this machine must not run some of the cases, or all; None if it may."""
    plan = reading.plan
    if plan is None:
        return None
    jobs = select_cases(plan.jobs, cases) if cases else plan.jobs
    try:
        shortage = find_shortage(
            [(job, plan.find_hosts(job)) for job in jobs], plan.request.environ
        )
    except SpbenchError:  # a hostfile that is gone: the run says so
        return None
    if shortage is not None:
        return shortage[0]
    return find_rejection(replace(plan, jobs=jobs))


def estimate_parsed(reading: ParsedSuite) -> RunEstimate:
    """Return the estimated duration of the cases; an empty one if they cannot be planned."""
    plan = reading.plan
    return NO_ESTIMATE if plan is None else estimate_plan(plan, plan.request.home)


def estimate_suite(suite: Suite, request: Request) -> RunEstimate:
    """Return the estimated duration of a suite; an empty one if it cannot be planned."""
    try:
        return estimate_plan(plan_suite(request, suite), request.home)
    except SpbenchError:
        return NO_ESTIMATE


def find_command(reading: ParsedSuite, case: str) -> JobCommand | str:
    """Return the command of a case's job, or in one sentence why there is none."""
    if reading.plan is None:
        return reading.plan_error
    try:
        working_folder()  # a launch line is one for this folder
        return build_case_command(reading.plan, case)
    except SpbenchError as error:
        return str(error)
