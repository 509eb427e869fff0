"""The text in the editor as the loader reads it: errors, or cases and the plan of their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench.engine.commands import JobCommand, case_command
from spbench.engine.plan import Request, RunPlan, plan_suite, settings_of
from spbench.errors import Diagnostic, SpbenchError, UsageError
from spbench.record.runs.folder import working_folder
from spbench.suites.case import Case
from spbench.suites.edit.check import Examined, examine
from spbench.suites.edit.outline import EntryLines, Outline
from spbench.suites.loader import load_text


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the loader reads it.

    Attributes:
        spans: The lines of its case entries; empty where it is no YAML.
        plan: Its jobs; None where there are none.
        refusal: Why its jobs cannot be planned, in one sentence.
    """

    text: str
    examined: Examined
    spans: Sequence[EntryLines] = ()
    plan: RunPlan | None = None
    refusal: str = ""

    @property
    def problems(self) -> Sequence[Diagnostic]:
        """The errors of the text, in the order of their places."""
        return self.examined.diagnostics

    @property
    def cases(self) -> Sequence[Case]:
        """The cases; none where the text has errors."""
        return self.examined.suite.cases if self.examined.suite else ()


def read(text: str, request: Request) -> Reading:
    """Return what a text comes to, for the hosts and the launcher of a request."""
    examined = examine(text, request.suite)
    spans = _spans(text)
    if examined.suite is None:
        return Reading(text, examined, spans)
    try:
        settings = settings_of(request)
        suite = load_text(text, request.suite, settings) if settings else examined.suite
        return Reading(text, examined, spans, plan_suite(request, suite))
    except SpbenchError as error:
        return Reading(text, examined, spans, refusal=str(error))


def _spans(text: str) -> Sequence[EntryLines]:
    try:
        return Outline(text).spans
    except UsageError:
        return ()


def command_of(reading: Reading, case: str) -> JobCommand | str:
    """Return the command of a case's job, or in one sentence why there is none."""
    if reading.plan is None:
        return reading.refusal
    try:
        working_folder()  # a launch line is one for this folder
        return case_command(reading.plan, case)
    except SpbenchError as error:
        return str(error)
