"""Sentences about a run: stragglers, failed checks and cases with their reasons, findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.record.case_state import CaseState
from spbench.record.findings import names_slow_part
from spbench.record.judge import describe_failed_checks
from spbench.record.machine.core_sharing import describe_sharing, summarize_sharing
from spbench.record.messages.enumeration import enumerate_names, name_cases
from spbench.record.messages.stragglers import Lag, describe_lags, find_lags
from spbench.record.noise import summarize_noise
from spbench.record.number_formatting import NOISY
from spbench.tui.cells import format_status
from spbench.tui.feed import Feed
from spbench_core.events.statuses import CaseStatus, RunStatus

MUTED = "$foreground 60%"
"""In a style, unlike in a rule, `$text-muted` would be as bright as any other text."""
_COLOURS: Mapping[str, str] = {
    CaseStatus.PASSED: "$text-success",
    CaseStatus.FAILED: "$text-error",
    CaseStatus.ERROR: "$text-error",
    CaseStatus.TIMEOUT: "$text-error",
    CaseStatus.RUNNING: "$text-primary",
    CaseStatus.CANCELLED: MUTED,
    CaseStatus.SKIPPED: MUTED,
    CaseStatus.UNFINISHED: "$text-warning",
    "slow": "$text-warning",
    "noisy": "$text-warning",
    "note": MUTED,
}
_SIGNS = {"slow": "▲ slow", "noisy": f"{NOISY} noisy", "note": "•"}


@dataclass(frozen=True, slots=True)
class RunFinding:
    """A sentence, its subject, and its kind: a verdict, ``slow``, ``noisy`` or ``note``."""

    kind: str
    subject: str
    message: str

    @property
    def sign(self) -> str:
        """The kind of the sentence, as glyph and word."""
        return _SIGNS.get(self.kind) or format_status(self.kind)

    @property
    def text(self) -> str:
        """The sentence, and before it what it is about."""
        return f"{self.subject}: {self.message}" if self.subject else self.message

    @property
    def line(self) -> str:
        """The sentence with its sign."""
        return f"{self.sign} {self.text}"

    def content(self) -> Content:
        """Return the line, its sign in its colour."""
        return Content.assemble((self.sign, status_colour(self.kind)), f" {self.text}")


def status_colour(kind: str) -> str:
    """Return the style of a word's sign, or of a status."""
    return _COLOURS.get(kind, "")


class RunFindings:
    """Makes the sentences about a run, each once.

    While the run is going on they follow from its state. After its end they are the findings that
    were recorded, by whichever version of spbench.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._judged: list[tuple[str, float | None]] = []
        self._failures: dict[str, tuple[RunFinding, ...]] = {}
        self._lags_of: dict[tuple[str, float | None], list[Lag]] = {}
        self._sharing_of: tuple[object, str | None] = (None, None)
        self._noise: list[str] = []

    def collect(self) -> list[RunFinding]:
        """Return everything there is to say, the most pressing first."""
        self._summarize_judged()
        slow = [RunFinding("slow", "", sentence) for sentence in describe_lags(self._all_lags())]
        noisy = [RunFinding("noisy", "", sentence) for sentence in [*self._sharing(), *self._noise]]
        notes = list(self._notes())
        if self._has_ended:
            known = {word.message: word for word in (*slow, *noisy)}
            recorded = [
                known.get(finding, RunFinding(_kind_of(finding), "", finding))
                for finding in self._feed.state.findings
            ]
            slow, noisy, others = (
                [word for word in recorded if word.kind == kind]
                for kind in ("slow", "noisy", "note")
            )
            notes += others
        return [*self._of_run(), *slow, *self._all_failures(), *noisy, *notes]

    def _all_failures(self) -> list[RunFinding]:
        """Return why cases failed; cases with the same reason are named together."""
        ids: dict[tuple[str, str], list[str]] = {}
        for case in self._feed.state.cases.values():
            for word in self._failures_of(case):
                ids.setdefault((word.kind, word.message), []).append(case.id)
        return [
            RunFinding(kind, enumerate_names(cases, "cases"), sentence)
            for (kind, sentence), cases in ids.items()
        ]

    def _summarize_judged(self) -> None:
        """Summarize the judged cases again if there are others than the last time."""
        state = self._feed.state
        cases = [case for case in state.cases.values() if case.status.is_final]
        judged = [(case.id, case.verdict.finished) for case in cases]
        if judged == self._judged:
            return
        known = self._lags_of.keys() & set(judged)
        self._judged = judged
        self._failures.clear()
        self._lags_of = {
            key: self._lags_of[key] if key in known else find_lags(case, case.verdict.stragglers)
            for key, case in zip(judged, cases, strict=True)
        }
        self._noise = summarize_noise(state)

    def _all_lags(self) -> list[Lag]:
        """Return the stragglers of the judged cases and of the running one."""
        case = self._feed.rows.case
        judged = [lag for lags in self._lags_of.values() for lag in lags]
        if self._feed.ended or case is None or case.status != CaseStatus.RUNNING:
            return judged
        return [*self._feed.stragglers.find_lags(), *judged]

    def _sharing(self) -> list[str]:
        """Return whether ranks share cores: those of the run, or of a job without a case yet."""
        state = self._feed.state
        if not state.jobs:
            return []
        newest = state.jobs[max(state.jobs)]
        # With thousands of ranks it takes milliseconds to find out.
        key = (newest.number, len(newest.ranks), len(self._judged))
        if key != self._sharing_of[0]:
            sharing = summarize_sharing(state) or describe_sharing(newest)
            self._sharing_of = (key, sharing)
        sharing = self._sharing_of[1]
        return [sharing] if sharing else []

    @property
    def _has_ended(self) -> bool:
        """Whether the run's end was recorded, and with it the findings."""
        run = self._feed.state.run
        return run is not None and run.finished is not None

    def _of_run(self) -> Iterator[RunFinding]:
        feed = self._feed
        if feed.failure:
            yield RunFinding(CaseStatus.ERROR, "", feed.failure)
        elif feed.status == RunStatus.UNFINISHED:
            yield RunFinding(CaseStatus.UNFINISHED, "", _why_unfinished(feed.remote_host))
        for error in feed.state.errors:
            yield RunFinding(CaseStatus.ERROR, "", error)
        if feed.state.skipped:
            yield RunFinding(CaseStatus.ERROR, "", feed.state.skipped)

    def _failures_of(self, case: CaseState) -> tuple[RunFinding, ...]:
        if case.status == CaseStatus.WAITING:
            return ()
        if case.status == CaseStatus.RUNNING:
            return _failed(case) if not all(case.measured.checked.values()) else ()
        if case.id not in self._failures:
            self._failures[case.id] = _failures(case)
        return self._failures[case.id]

    def _notes(self) -> Iterator[RunFinding]:
        cases_of: dict[str, list[str]] = {}
        for case in self._feed.state.cases.values():
            # The reason of a case that failed by the fault itself names it.
            if case.identity.inject and "planted fault" not in (case.verdict.reason or ""):
                cases_of.setdefault(case.identity.inject, []).append(case.id)
        if cases_of:
            planted = [f"{fault} {name_cases(cases)}" for fault, cases in cases_of.items()]
            yield RunFinding("note", "", f"planted faults: {'; '.join(planted)}")
        if self._feed.remote_host and not self._feed.ended:
            told = f"the run is running on {self._feed.remote_host}, as far as its log shows"
            yield RunFinding("note", "", f"{told}; it can be cancelled there")


def _why_unfinished(host: str | None) -> str:
    gone = f"nothing came from its console on {host} for long" if host else "its console was killed"
    return f"the run has no end: {gone}; what it had measured is here"


def _failed(case: CaseState) -> tuple[RunFinding, ...]:
    return tuple(
        RunFinding(CaseStatus.FAILED, case.id, sentence)
        for sentence in describe_failed_checks(case)
    )


def _failures(case: CaseState) -> tuple[RunFinding, ...]:
    """Return the reason of a judged case that has not passed, and each check that failed."""
    if case.status == CaseStatus.PASSED:
        return ()
    words = _failed(case)
    if case.verdict.reason and all(word.message != case.verdict.reason for word in words):
        words = (RunFinding(case.status, case.id, case.verdict.reason), *words)
    return words or (RunFinding(case.status, case.id, "no reason was given"),)


class FindingsPanel(VerticalScroll):
    """The sentences, one below the other."""

    HELP = """\
What there is to say of the run: who lags behind and for how long, which checks failed on which
ranks with the largest error and where, why cases did not pass, and what the run has found.
y copies it all; up and down scroll."""
    DEFAULT_CSS = """
    WordsPanel { height: 1fr; scrollbar-size: 1 1; }
    WordsPanel Static { height: auto; }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = Static("", markup=False)
        self._shown: list[RunFinding] | None = None

    def compose(self) -> Iterator[Static]:
        yield self._text

    def show(self, words: list[RunFinding]) -> None:
        """Show these words."""
        if words == self._shown:
            return
        self._shown = words
        nothing = Content.assemble(("no problems found so far", MUTED))
        self._text.update(Content("\n").join(word.content() for word in words) or nothing)


def _kind_of(finding: str) -> str:
    return "slow" if names_slow_part(finding) else "note"
