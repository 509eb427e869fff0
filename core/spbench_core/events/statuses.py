"""The statuses of runs, cases, launches, ranks, checks and log events.

Their values are those of events, reports and JSON. `state_machines` has the transitions.
"""

from __future__ import annotations

from enum import StrEnum


class CaseStatus(StrEnum):
    """The status of a case.

    Events and reports have the statuses of judged cases. Views add ``flaky``, for a case that
    passed in a retry, and ``unfinished``, for a case of a killed console.
    """

    WAITING = "waiting"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    FLAKY = "flaky"
    UNFINISHED = "unfinished"

    @property
    def is_final(self) -> bool:
        """Whether the case is judged, or unfinished."""
        return self not in (CaseStatus.WAITING, CaseStatus.RUNNING)

    @property
    def is_measured(self) -> bool:
        """Whether all ranks ran to the end, so that times were measured."""
        return self in (CaseStatus.PASSED, CaseStatus.FAILED)

    @property
    def is_broken(self) -> bool:
        """Whether the case ended without a result."""
        return self in (CaseStatus.ERROR, CaseStatus.TIMEOUT)

    @property
    def is_cut_short(self) -> bool:
        """Whether the case ended early, so that iterations are missing."""
        return self.is_broken or self in (CaseStatus.CANCELLED, CaseStatus.UNFINISHED)

    @property
    def is_bad(self) -> bool:
        """Whether the case ran and did not pass: a retry runs it again."""
        return self is CaseStatus.FAILED or self.is_broken

    @property
    def is_worth_another_run(self) -> bool:
        """Whether the case failed or was cancelled: ``--failed`` runs it again."""
        return self.is_bad or self is CaseStatus.CANCELLED

    @property
    def has_result(self) -> bool:
        """Whether the case ran and was judged by the results of its ranks."""
        return self is CaseStatus.PASSED or self.is_bad

    @property
    def was_not_run(self) -> bool:
        """Whether the case was skipped or cancelled."""
        return self in (CaseStatus.CANCELLED, CaseStatus.SKIPPED)


class RunStatus(StrEnum):
    """The status of a run.

    The events and the report of a run that has ended have ``passed`` to ``skipped``. Only lists of
    runs have the others: ``unfinished`` if there is no end, ``unreadable`` if its run.json is too
    large, ``baseline`` for a baseline that is compared like a run.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"
    BASELINE = "baseline"

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self.value in FINAL_STATUSES


FINAL_STATUSES = ("passed", "failed", "error", "timeout", "cancelled", "skipped")
"""The statuses that judged cases and ended runs have in events and reports."""


class JobStatus(StrEnum):
    """The status of a launch: its ranks start, all of them are ready, or it has ended."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class RankPhase(StrEnum):
    """The phase of a rank of the current launch.

    While a case makes progress the phase is ``working``, and the benchmark names the activity.
    A rank is ``unfinished`` if its launch or its console was ended before the rank was done.
    """

    STARTING = "starting"
    READY = "ready"
    SETUP = "setup"
    WORKING = "working"
    DONE = "done"
    ERROR = "error"
    LOST = "lost"
    ENDED = "ended"
    UNFINISHED = "unfinished"

    @property
    def is_over(self) -> bool:
        """Whether the rank has ended its case or its process."""
        return self in (RankPhase.DONE, RankPhase.ERROR, RankPhase.LOST, RankPhase.ENDED)

    @property
    def is_broken(self) -> bool:
        """Whether the rank ended in an exception, or its connection was lost."""
        return self in (RankPhase.ERROR, RankPhase.LOST)

    @property
    def is_before_work(self) -> bool:
        """Whether the rank has reported no progress in a case so far."""
        return self in (RankPhase.STARTING, RankPhase.READY, RankPhase.SETUP)


class RankStatus(StrEnum):
    """The status of a rank in one case."""

    WAITING = "waiting"
    RUNNING = "running"
    OK = "ok"
    ERROR = "error"
    LOST = "lost"

    @property
    def is_broken(self) -> bool:
        """Whether the rank ended in an exception, or its connection was lost."""
        return self in (RankStatus.ERROR, RankStatus.LOST)


class CheckOutcome(StrEnum):
    """The outcome of a check or an expectation; only expectations are skipped."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Activity(StrEnum):
    """The activities of a rank that spbench itself uses; benchmarks have more.

    In ``running`` a rank runs a program, and reports only the number of lines as its progress. In
    ``waiting`` its program waits for a line that another rank's program prints.
    """

    IMPORT = "import"
    WARMUP = "warmup"
    TIMING = "timing"
    RUNNING = "running"
    WAITING = "waiting"


TIMED = frozenset({Activity.WARMUP, Activity.TIMING, Activity.RUNNING})
"""The activities of the timed part of a case."""

PhaseProgress = tuple[str, int]
"""A phase or activity, and its number of completed steps."""


def restarts_deadline(before: PhaseProgress | None, current: PhaseProgress) -> bool:
    """Return whether a rank's deadline restarts with a report of progress.

    The timed part, including its warm-up, must end within the case's timeout. The parts before and
    after it, such as checks and baselines, may take longer than the measurement. For them each
    progress restarts the deadline, so that a rank that makes progress is not ended.
    """
    if current[0] in TIMED:
        return before is None or before[0] not in TIMED
    return before != current


class LogLevel(StrEnum):
    """The level of a rank's log event; some are signals to the console."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    LINE = "line"
    """A line of a benchmark's own output."""
    WHERE = "where"
    """The current activity of a rank, which the console has requested; in views a traceback too."""
    LOADING = "loading"
    """The rank is about to load torch, which can delay its heartbeat."""
    PRINTED = "printed"
    """A program printed a line for which another rank waits; the console forwards it."""
    BROKEN_OFF = "broken off"
    """A program ended unexpectedly; the console forwards it to the other ranks."""
    ORPHANED = "orphaned"
    """The launcher's helper that has started the rank has ended."""
