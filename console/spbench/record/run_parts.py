"""Parts of a run's state: its description, launches, ranks and counts of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.planted_faults import FaultOutcome, format_result_count
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.statuses import CaseStatus, JobStatus, RankPhase, RunStatus


@dataclass(slots=True)
class RankState:
    """A rank of the job that is running, or ran last."""

    rank: int
    facts: RankFacts
    phase: RankPhase = RankPhase.STARTING
    activity: str = ""
    """The benchmark's name of its activity while its phase is ``working``."""
    phase_since: float = 0.0
    """The time at which it began its case or first reported its activity, by its own clock."""
    case: str | None = None
    repeat: int = 0
    done: int = 0
    total: int = 0
    last_ms: float | None = None
    last_timed: float = 0.0
    """The time of its last samples, by its own clock."""
    last_heard: float = 0.0

    @property
    def host(self) -> str:
        """Its host."""
        return self.facts.host

    @property
    def shown_phase(self) -> str:
        """Its activity if it has one, otherwise its phase."""
        return self.activity if self.phase is RankPhase.WORKING else self.phase.value


@dataclass(slots=True)
class JobState:
    """One MPI launch."""

    number: int
    launcher: str
    version: str
    argv: tuple[str, ...]
    hostfile: str | None
    env: Mapping[str, str]
    np: int
    cases: tuple[str, ...]
    started: float
    oversubscribed: bool
    requested_placement: Mapping[str, Any] = field(default_factory=dict)
    first_rank: int = 0
    """The number of its rank 0 among the ranks of its cases."""
    status: JobStatus = JobStatus.STARTING
    finished: float | None = None
    reason: str | None = None
    ranks: dict[int, RankFacts] = field(default_factory=dict)
    """The facts of each rank that is ready."""
    first_case: float | None = None
    """The time at which a rank began the first case, by its own clock."""

    @property
    def rank_range(self) -> range:
        """The numbers of its ranks."""
        return range(self.first_rank, self.first_rank + self.np)


@dataclass(slots=True)
class RunInfo:
    """The description of a run: its suite, arguments, seed, times and status."""

    id: str
    suite: str
    description: str
    argv: tuple[str, ...]
    seed: int | None
    started: float
    environment: Mapping[str, Any]
    finished: float | None = None
    status: RunStatus | None = None
    exit_code: int | None = None
    load_after: float | None = None
    resumed: list[Mapping[str, Any]] = field(default_factory=list)
    """The time and host of each continuation, and the number of cases that ran again."""


@dataclass(slots=True)
class IgnoredEvents:
    """Events that are illegal by the state machines, and changed nothing."""

    count: int = 0
    first: str = ""

    def add(self, reason: str) -> None:
        """Count an event; the reason of the first one is kept."""
        self.count += 1
        self.first = self.first or reason

    @property
    def finding(self) -> str | None:
        """The finding on these events; None if every event was legal."""
        if not self.count:
            return None
        events = "1 event contradicts" if self.count == 1 else f"{self.count} events contradict"
        return f"{events} the events before and changed nothing: {self.first}"


@dataclass(frozen=True, slots=True)
class CaseCounts:
    """Numbers of cases.

    Attributes:
        total: All cases of the run.
        ran: Cases with a result.
        passed: Cases that passed.
        cancelled: Cancelled cases, whether ranks had begun them or not.
        idle: Other cases without a result that no rank has begun.
        repeats: The repeats of all cases, as far as known.
        ended_repeats: The repeats of cases with a result, and the ended ones of running cases.
        bad_repeats: The repeats of cases that did not pass.
        failed: Other cases with a failure.
        errors: Other cases with an error.
        timeouts: Other cases with a timeout.
        fault_found: Cases that failed because their planted fault was found.
        found_repeats: The repeats of these cases, which are not among the bad ones.
    """

    total: int
    ran: int
    passed: int
    cancelled: int
    idle: int
    repeats: int
    ended_repeats: int
    bad_repeats: int
    failed: int = 0
    errors: int = 0
    timeouts: int = 0
    fault_found: int = 0
    found_repeats: int = 0

    def describe(self, ended: bool) -> str:
        """Return the progress of a run, or the result of one that has ended.

        ``3/4 cases``, for cases with repeats ``7/16 repeats``, or ``2/4 passed, 2 faults found``.
        Failed cases are counted only next to cases that did not run to their end, since otherwise
        they are the rest.
        """
        if not ended and self.repeats > self.total:
            return f"{self.ended_repeats}/{self.repeats} repeats"
        if not ended:
            return f"{self.ran}/{self.total} cases"
        failures: dict[str, int] = {
            CaseStatus.FAILED: self.failed,
            CaseStatus.ERROR: self.errors,
            CaseStatus.TIMEOUT: self.timeouts,
        }
        if not (self.cancelled or self.idle):
            failures = {}
        counts = {
            **failures,
            FaultOutcome.FOUND: self.fault_found,
            CaseStatus.CANCELLED: self.cancelled,
            "did not run": self.idle,
        }
        others = [format_result_count(count, text) for text, count in counts.items() if count]
        return ", ".join([f"{self.passed}/{self.total} passed", *others])


def count_cases(cases: Iterable[CaseState]) -> CaseCounts:
    """Count the cases of a run."""
    all_cases = list(cases)
    judged = [case for case in all_cases if case.status.has_result]
    unjudged = [case for case in all_cases if not case.status.has_result]
    running = [case for case in unjudged if case.status == CaseStatus.RUNNING]
    bad = [case for case in judged if case.status.is_bad]
    found_cases = [case for case in bad if case.execution.status_text is FaultOutcome.FOUND]
    bad_counts = Counter(
        case.status for case in bad if case.execution.status_text is not FaultOutcome.FOUND
    )
    found_repeats = sum(case.repeats for case in found_cases)
    return CaseCounts(
        total=len(all_cases),
        ran=len(judged),
        passed=sum(case.status == CaseStatus.PASSED for case in judged),
        cancelled=sum(case.status == CaseStatus.CANCELLED for case in unjudged),
        idle=sum(
            case.execution.started is None and case.status != CaseStatus.CANCELLED
            for case in unjudged
        ),
        repeats=sum(case.repeats for case in all_cases),
        ended_repeats=sum(case.repeats for case in judged)
        + sum(case.num_ended_repeats for case in running),
        bad_repeats=sum(case.repeats for case in bad) - found_repeats,
        failed=bad_counts[CaseStatus.FAILED],
        errors=bad_counts[CaseStatus.ERROR],
        timeouts=bad_counts[CaseStatus.TIMEOUT],
        fault_found=len(found_cases),
        found_repeats=found_repeats,
    )
