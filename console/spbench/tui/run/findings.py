"""Findings about a run: errors, stragglers, failed checks and cases, and noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from textual.content import Content

from spbench.record.case_state import CaseState
from spbench.record.findings import names_slow_part
from spbench.record.judge import describe_failed_checks, describe_other_failed_checks
from spbench.record.machine.core_sharing import describe_sharing, summarize_sharing
from spbench.record.machine.gpu_throttling import describe_lost_gpus
from spbench.record.messages.enumeration import enumerate_names, name_cases
from spbench.record.messages.outcome import describe_outcome
from spbench.record.messages.stragglers import Lag, describe_lags, find_lags
from spbench.record.noise import summarize_noise
from spbench.record.number_formatting import NOISY, format_status
from spbench.record.planted_faults import FaultOutcome, find_fault_outcome, names_found_rank
from spbench.record.stragglers import is_planted
from spbench.tui.advice import name_keys
from spbench.tui.cells import STATUS_COLOURS
from spbench.tui.feed import Feed, ReplaySource
from spbench_core.events.statuses import CaseStatus, RunStatus


class FindingKind(StrEnum):
    """The kinds of findings that are not statuses of cases."""

    SUMMARY = "summary"
    NEXT_STEP = "next step"
    LOST = "lost"
    SLOW = "slow"
    NOISY = "noisy"
    NOTE = "note"


MUTED = "$text-muted"
"""Muted text in a style; `$text-muted` would have full brightness outside of CSS rules."""
_COLOURS: Mapping[str, str] = {
    **STATUS_COLOURS,
    CaseStatus.CANCELLED: MUTED,
    CaseStatus.SKIPPED: MUTED,
    FaultOutcome.FOUND: "$text-accent",
    FaultOutcome.MISSED: "$text-error",
    FindingKind.SUMMARY: "bold",
    FindingKind.NEXT_STEP: "$text-accent",
    FindingKind.LOST: "$text-error",
    FindingKind.SLOW: "$text-warning",
    FindingKind.NOISY: "$text-warning",
    FindingKind.NOTE: MUTED,
}
_SIGNS: Mapping[str, str] = {
    FindingKind.SUMMARY: "■ ended",
    FindingKind.NEXT_STEP: "→",
    FindingKind.LOST: "✗ lost",
    FindingKind.SLOW: "▲ slow",
    FindingKind.NOISY: f"{NOISY} noisy",
    FindingKind.NOTE: "•",
}


QUIET_KINDS = (FindingKind.SUMMARY, FindingKind.NOTE)
"""The kinds of findings that are only in the pane of the findings."""
_WITHOUT_RESULT = frozenset({CaseStatus.CANCELLED, CaseStatus.SKIPPED})
"""Statuses of cases without a result; a colon separates them from the names of the cases."""
_SEE_PLAN = "c shows predicted and measured times"
_CANCELLED_PREFIX = f"{CaseStatus.CANCELLED} "


@dataclass(frozen=True, slots=True)
class RunFinding:
    """A message on a subject, and its kind, which may be the status of a case."""

    kind: CaseStatus | FindingKind
    subject: str
    message: str

    @property
    def is_problem(self) -> bool:
        """Whether a part of the run failed or is slow."""
        return self.kind not in (*QUIET_KINDS, FindingKind.NEXT_STEP, FindingKind.NOISY)

    @property
    def sign(self) -> str:
        """The kind, as glyph and word."""
        sign = _SIGNS.get(self.kind) or format_status(self.kind, self._fault_outcome)
        return f"{sign}:" if self.kind in _WITHOUT_RESULT and self.subject else sign

    @property
    def text(self) -> str:
        """The message with its subject in front."""
        message = name_keys(self.message)
        return f"{self.subject}: {message}" if self.subject else message

    @property
    def line(self) -> str:
        """The text with its sign in front."""
        return f"{self.sign} {self.text}"

    @property
    def _fault_outcome(self) -> str:
        """The outcome of a planted fault if the finding is the reason of its case."""
        is_failed = isinstance(self.kind, CaseStatus) and self.kind.is_bad
        return (find_fault_outcome(self.message) if is_failed else None) or ""

    def content(self) -> Content:
        """Return the line with a coloured sign."""
        colour = choose_colour(self._fault_outcome or self.kind)
        return Content.assemble((self.sign, colour), f" {self.text}")


def choose_colour(kind: str) -> str:
    """Return the style of a status or of another kind of finding."""
    return _COLOURS.get(kind, "")


class RunFindings:
    """The findings about a run.

    While the run is running, they are derived from its state. After its end they are the recorded
    findings, which another version of spbench may have written.

    Args:
        feed: The run.
        planned_suite: The suite of a plan with times on the Plan page; None: none.

    Attributes:
        report_note: The place of the report of an ended run; None until it was found.
    """

    def __init__(self, feed: Feed, planned_suite: Path | None = None) -> None:
        self.report_note: str | None = None
        self._planned_suite = planned_suite
        self._feed = feed
        self._finished_cases: list[tuple[str, float | None]] = []
        self._failures_by_case: dict[str, tuple[RunFinding, ...]] = {}
        self._lags_by_case: dict[tuple[str, float | None], list[Lag]] = {}
        self._sharing_cache: tuple[object, str | None] = (None, None)
        self._noise: list[str] = []
        self._outcome = ""

    def collect(self) -> list[RunFinding]:
        """Return all findings, the most severe first."""
        self._update_finished_cases()
        lost_findings = [
            RunFinding(FindingKind.LOST, "", message)
            for message in describe_lost_gpus(self._feed.state.gpu_loads)
        ]
        slow_findings = [
            RunFinding(FindingKind.SLOW, "", message)
            for message in describe_lags(self._collect_lags())
        ]
        noise_messages = [*self._describe_core_sharing(), *self._noise]
        noisy_findings = [RunFinding(FindingKind.NOISY, "", message) for message in noise_messages]
        notes = list(self._collect_notes())
        if self._has_ended:
            derived_by_message = {
                finding.message: finding
                for finding in (*lost_findings, *slow_findings, *noisy_findings)
            }
            recorded = [
                derived_by_message.get(message, RunFinding(_classify(message), "", message))
                for message in self._feed.state.findings
            ]
            slow_findings = [finding for finding in recorded if finding.kind is FindingKind.SLOW]
            noisy_findings = [finding for finding in recorded if finding.kind is FindingKind.NOISY]
            notes += [finding for finding in recorded if finding.kind is FindingKind.NOTE]
        failures = self._collect_failures()
        return [
            *self._summarize(),
            *self._collect_errors(),
            *lost_findings,
            *(failure for failure in failures if failure.kind not in _WITHOUT_RESULT),
            *slow_findings,
            *(failure for failure in failures if failure.kind in _WITHOUT_RESULT),
            *noisy_findings,
            *notes,
        ]

    def _summarize(self) -> list[RunFinding]:
        """Return the summary of a run that has ended, with the next steps."""
        if not self._has_ended:
            return []
        if isinstance(self._feed.source, ReplaySource):
            # The demo, for example, is not among the runs of the Results page.
            return [RunFinding(FindingKind.SUMMARY, "", self._outcome)]
        side = self._feed.compared_side
        is_of_plan = self._feed.runs_suite(self._planned_suite)
        steps = "" if is_of_plan else "c compares it with earlier runs"
        if side is not None:
            steps = f"c goes back to the comparison with {side}"
        cases = self._feed.state.cases.values()
        if any(case.status.is_worth_another_run for case in cases):
            failed = "failed" if any(case.status.is_bad for case in cases) else "was cancelled"
            steps = ", ".join(filter(None, (f"F runs again what {failed}", steps)))
        summary = "; ".join(filter(None, (self._outcome, steps)))
        findings = [RunFinding(FindingKind.SUMMARY, "", summary)]
        if is_of_plan:
            findings.append(RunFinding(FindingKind.NEXT_STEP, "", _SEE_PLAN))
        return findings

    def _collect_failures(self) -> list[RunFinding]:
        """Return why cases failed; cases with the same reason are grouped."""
        case_ids_by_finding: dict[tuple[CaseStatus | FindingKind, str], list[str]] = {}
        stopped: tuple[CaseStatus | FindingKind, str] | None = None
        for case in self._feed.state.cases.values():
            for finding in self._get_failures(case):
                key = finding.kind, finding.message
                if finding.kind in _WITHOUT_RESULT:
                    # One finding for the case that was cancelled and those that did not begin.
                    key = finding.kind, finding.message.removeprefix("did not run: ")
                    if self._feed.status == RunStatus.CANCELLED:
                        key = stopped = stopped or key
                case_ids_by_finding.setdefault(key, []).append(case.id)
        return [
            _name_cases(kind, message, enumerate_names(case_ids, "cases"))
            for (kind, message), case_ids in case_ids_by_finding.items()
        ]

    def _update_finished_cases(self) -> None:
        """Summarize the finished cases again if they have changed."""
        state = self._feed.state
        cases = [case for case in state.cases.values() if case.status.is_final]
        keys = [(case.id, case.execution.finished) for case in cases]
        if keys == self._finished_cases:
            return
        self._finished_cases = keys
        self._failures_by_case.clear()
        previous = self._lags_by_case
        self._lags_by_case = {
            key: previous[key] if key in previous else find_lags(case, case.execution.stragglers)
            for key, case in zip(keys, cases, strict=True)
        }
        self._noise = summarize_noise(state)
        self._outcome = describe_outcome(state.cases.values())

    def _collect_lags(self) -> list[Lag]:
        """Return the stragglers of the running case, then those of the finished cases."""
        case = self._feed.rows.case
        finished = [lag for lags in self._lags_by_case.values() for lag in lags]
        if self._feed.ended or case is None or case.status != CaseStatus.RUNNING:
            return finished
        return [*self._feed.stragglers.find_lags(), *finished]

    def _describe_core_sharing(self) -> list[str]:
        """Return a message if ranks share cores: in the run, or else in its newest job."""
        state = self._feed.state
        if not state.jobs:
            return []
        newest = state.jobs[max(state.jobs)]
        # Cached, since thousands of ranks take milliseconds.
        key = (newest.number, len(newest.ranks), len(self._finished_cases))
        if key != self._sharing_cache[0]:
            sharing = summarize_sharing(state) or describe_sharing(newest)
            self._sharing_cache = (key, sharing)
        sharing = self._sharing_cache[1]
        return [sharing] if sharing else []

    @property
    def _has_ended(self) -> bool:
        """Whether the end of the run, and with it its findings, were recorded."""
        run = self._feed.state.run
        return run is not None and run.finished is not None

    def _collect_errors(self) -> Iterator[RunFinding]:
        feed = self._feed
        if feed.failure:
            yield RunFinding(CaseStatus.ERROR, "", feed.failure)
        elif feed.status == RunStatus.UNFINISHED:
            yield RunFinding(CaseStatus.UNFINISHED, "", _explain_unfinished(feed.remote_host))
        for error in feed.state.errors:
            yield RunFinding(CaseStatus.ERROR, "", error)
        if feed.state.skipped_message:
            yield RunFinding(CaseStatus.ERROR, "", feed.state.skipped_message)

    def _get_failures(self, case: CaseState) -> tuple[RunFinding, ...]:
        if case.status == CaseStatus.WAITING:
            return ()
        if case.status == CaseStatus.RUNNING:
            if all(case.measured.passed_by_rank.values()):
                return ()
            return _list_failed_checks(case, describe_failed_checks(case))
        if case.id not in self._failures_by_case:
            self._failures_by_case[case.id] = _list_failures(case)
        return self._failures_by_case[case.id]

    def _collect_notes(self) -> Iterator[RunFinding]:
        if self.report_note is not None:
            yield RunFinding(FindingKind.NOTE, "", self.report_note)
        cases_by_fault: dict[str, list[str]] = {}
        for case in self._feed.state.cases.values():
            # If a case failed because of its fault, the reason names the fault.
            if case.identity.inject and find_fault_outcome(case.execution.reason) is None:
                cases_by_fault.setdefault(case.identity.inject, []).append(case.id)
        if cases_by_fault:
            planted = [f"{fault} {name_cases(cases)}" for fault, cases in cases_by_fault.items()]
            yield RunFinding(FindingKind.NOTE, "", f"planted faults: {'; '.join(planted)}")
        if self._feed.remote_host and not self._feed.ended:
            note = f"the run is running on {self._feed.remote_host}, as far as its log shows"
            yield RunFinding(FindingKind.NOTE, "", f"{note}; it can be cancelled there")


def _explain_unfinished(host: str | None) -> str:
    cause = "its console was killed"
    if host:
        cause = f"nothing came from its console on {host} for long"
    return f"the run has no end: {cause}; what it had measured is here"


def _name_cases(kind: CaseStatus | FindingKind, message: str, cases: str) -> RunFinding:
    """Return a finding on cases; that on cancelled ones begins with the reason."""
    if kind == CaseStatus.CANCELLED and message.startswith(_CANCELLED_PREFIX):
        return RunFinding(kind, "", f"{message.removeprefix(_CANCELLED_PREFIX)}: {cases}")
    return RunFinding(kind, cases, message)


def _list_failed_checks(case: CaseState, messages: Iterable[str]) -> tuple[RunFinding, ...]:
    return tuple(RunFinding(CaseStatus.FAILED, case.id, message) for message in messages)


def _list_failures(case: CaseState) -> tuple[RunFinding, ...]:
    """Return the reason of a finished case that did not pass, and each failed check."""
    if case.status == CaseStatus.PASSED or _has_planted_straggler(case):
        return ()
    reason = case.execution.reason
    failures = _list_failed_checks(case, describe_other_failed_checks(case))
    if reason:
        return (RunFinding(case.status, case.id, reason), *failures)
    return failures or (RunFinding(case.status, case.id, "no reason was given"),)


def _has_planted_straggler(case: CaseState) -> bool:
    """Whether a case failed only by its planted slow rank, which has its own finding."""
    stragglers = case.execution.stragglers
    is_found = any(is_planted(straggler, case) for straggler in stragglers)
    return is_found and names_found_rank(case.execution.reason)


def _classify(message: str) -> FindingKind:
    """Return the kind of a recorded finding."""
    return FindingKind.SLOW if names_slow_part(message) else FindingKind.NOTE
