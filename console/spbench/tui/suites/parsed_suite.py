"""The text of a suite as parsed by the loader: errors, or cases and planned jobs.

The functions are called in threads. Only there, loader and engine are imported: that takes 0.1 s,
for which the first page would otherwise wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.engine.run_estimate import NO_ESTIMATE, RunEstimate
from spbench.errors import Diagnostic, LauncherMissingError, SpbenchError, UsageError
from spbench.record.runs.folder import find_working_folder
from spbench.tui.advice import name_keys
from spbench.tui.suites.rejected_entry import RejectedEntry, list_rejected_entries
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.commands import JobCommand
    from spbench.engine.plan import Request, RunPlan
    from spbench.suites.case import Case, Suite
    from spbench.suites.edit.outline import EntryLines, Outline
    from spbench.suites.loader import CheckedText


@dataclass(frozen=True, slots=True)
class ParsedSuite:
    """A parsed text.

    Attributes:
        text: The text.
        checked_text: The loader's result: the suite or errors.
        spans: The lines of the case entries; empty for invalid YAML.
        plan: The planned jobs; None if they cannot be planned.
        plan_error: A message on why the jobs cannot be planned; empty if they can.
        rejected_entries: The case entries with errors, in the order of the text.
        lacks_cases: Whether a suite was begun that only lacks cases, which is not an error.
        excess_by_case: Messages on cases with too many ranks for this machine, by id.
    """

    text: str
    checked_text: CheckedText
    spans: Sequence[EntryLines] = ()
    plan: RunPlan | None = None
    plan_error: str = ""
    rejected_entries: Sequence[RejectedEntry] = ()
    lacks_cases: bool = False
    excess_by_case: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> Sequence[Diagnostic]:
        """The errors of the text, in the order of their positions."""
        return () if self.lacks_cases else self.checked_text.diagnostics

    @property
    def cases(self) -> Sequence[Case]:
        """The cases of the entries without errors."""
        spans = [entry.span for entry in self.rejected_entries]
        lines = {line for span in spans for line in range(span.first, span.last + 1)}
        return [case for case in self.checked_text.cases if case.line not in lines]

    def count_cases(self, span: EntryLines) -> int:
        """Return the number of cases of an entry; 0 if it has errors."""
        return sum(span.first <= case.line <= span.last for case in self.cases)


def parse_text(text: str, request: Request) -> ParsedSuite:
    """Parse a text and plan its jobs for the hosts and the launcher of a request."""
    from spbench.engine.plan import build_settings, plan_suite
    from spbench.suites.edit.outline import lacks_only_cases
    from spbench.suites.loader import check_text, load_suite_text

    checked_text = check_text(text, request.suite)
    outline = _read_outline(text)
    spans = () if outline is None else outline.spans
    if checked_text.suite is None:
        rejected = () if outline is None else list_rejected_entries(checked_text, outline)
        lacks_cases = lacks_only_cases(checked_text, text)
        return ParsedSuite(text, checked_text, spans, None, "", rejected, lacks_cases)
    try:
        settings = build_settings(request)
        suite = load_suite_text(text, request.suite, settings) if settings else checked_text.suite
        plan = plan_suite(request, suite)
    except SpbenchError as error:
        return ParsedSuite(text, checked_text, spans, plan_error=str(error))
    return ParsedSuite(text, checked_text, spans, plan, excess_by_case=_find_excess(plan))


def _read_outline(text: str) -> Outline | None:
    """Return the outline of a text; None for invalid YAML."""
    from spbench.suites.edit.outline import Outline

    try:
        return Outline(text)
    except UsageError:
        return None


def find_rejection_reason(parsed: ParsedSuite, cases: Sequence[str] = ()) -> str | None:
    """Return why this machine must not run the cases (default: all); None if it may."""
    from spbench.engine.capacity import find_rejection
    from spbench.launch.devices import find_shortage
    from spbench.launch.jobs import select_cases

    plan = parsed.plan
    if plan is None:
        return None
    jobs = select_cases(plan.jobs, cases) if cases else plan.jobs
    try:
        shortage = find_shortage(
            [(job, plan.find_hosts(job)) for job in jobs], plan.request.environ
        )
    except SpbenchError:  # for example, a hostfile is missing; the run reports it
        return None
    if shortage is not None:
        return shortage[0]
    return find_rejection(replace(plan, jobs=jobs))


def _find_excess(plan: RunPlan) -> Mapping[str, str]:
    from spbench.engine.capacity import find_excess_ranks

    try:
        return find_excess_ranks(plan)
    except SpbenchError:  # for example, a hostfile is missing; the run reports it
        return {}


def estimate_parsed(parsed: ParsedSuite) -> RunEstimate:
    """Return the estimated duration of the cases; empty if they cannot be planned."""
    plan = parsed.plan
    return NO_ESTIMATE if plan is None else _estimate_plan(plan, plan.request.home)


def describe_launches(parsed: ParsedSuite) -> str:
    """Return the launches that a comparison needs; empty if the cases have them."""
    from spbench.stats.difference import compute_min_launches

    needed = compute_min_launches(max(1, len(parsed.cases)))
    present = min((case.repeat for case in parsed.cases), default=needed)
    if present >= needed:
        return ""
    launches = format_quantity(present, "launch", "launches")
    cases = format_quantity(len(parsed.cases), "case")
    return f"{launches} of each case: to compare runs of {cases}, set repeat to {needed} (Ctrl+D)"


@dataclass(frozen=True, slots=True)
class SuiteForecast:
    """The duration of a suite, and whether this machine is large enough for it.

    Attributes:
        estimate: The estimated duration; empty if the suite cannot be planned.
        excess: A message if it has too many ranks for this machine; otherwise empty.
    """

    estimate: RunEstimate = NO_ESTIMATE
    excess: str = ""


def forecast_suite(suite: Suite, request: Request) -> SuiteForecast:
    """Return the forecast of a suite; empty if it cannot be planned."""
    from spbench.engine.plan import plan_suite

    try:
        plan = plan_suite(request, suite)
        estimate = _estimate_plan(plan, request.home)
    except SpbenchError:
        return SuiteForecast()
    return SuiteForecast(estimate, next(iter(_find_excess(plan).values()), ""))


def _estimate_plan(plan: RunPlan, home: Path) -> RunEstimate:
    from spbench.engine.estimate import estimate_plan

    return estimate_plan(plan, home, consider_load=False)


def find_command(parsed: ParsedSuite, case: str) -> JobCommand | str:
    """Return the command of a case's job, or a message on why there is none."""
    from spbench.engine.commands import build_case_command

    if parsed.plan is None:
        return name_keys(parsed.plan_error)
    try:
        find_working_folder()  # a launch line is one for this folder
        return build_case_command(parsed.plan, case)
    except LauncherMissingError as error:
        return f"{error}\n→ L, then another library, shows the line for a cluster that has it"
    except SpbenchError as error:
        return name_keys(str(error))
