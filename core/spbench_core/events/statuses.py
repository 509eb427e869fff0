"""The closed sets of statuses: of runs, cases, launches and ranks, of checks, and of log events.

Their values are those of events, reports and JSON. `state_machines` says how events change them.
"""

from __future__ import annotations

from enum import StrEnum


class CaseStatus(StrEnum):
    """The status of a case.

    Events and reports have the statuses of judged cases. Views add ``flaky``, for a case that
    passed at a later try, and ``unfinished``, for a case that a killed console left behind.
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
        """Whether the case is judged, or left behind."""
        return self not in (CaseStatus.WAITING, CaseStatus.RUNNING)

    @property
    def is_measured(self) -> bool:
        """Whether all ranks ran to the end, so that there are times."""
        return self in (CaseStatus.PASSED, CaseStatus.FAILED)

    @property
    def is_broken(self) -> bool:
        """Whether the case ended without a result."""
        return self in (CaseStatus.ERROR, CaseStatus.TIMEOUT)

    @property
    def is_bad(self) -> bool:
        """Whether the case ran and did not pass: a retry runs it again."""
        return self is CaseStatus.FAILED or self.is_broken

    @property
    def has_result(self) -> bool:
        """Whether the case ran, and was judged by what its ranks did."""
        return self is CaseStatus.PASSED or self.is_bad

    @property
    def was_not_run(self) -> bool:
        """Whether the case was left out or cut short."""
        return self in (CaseStatus.CANCELLED, CaseStatus.SKIPPED)


class RunStatus(StrEnum):
    """The status of a run.

    The events and the report of a run that has ended have ``passed`` to ``skipped``. The others are
    those of lists of runs: ``unfinished`` without an end, ``unreadable`` if its run.json is too
    large, ``baseline`` for a baseline that is compared as a run.
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
        """Whether the run went to its end."""
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
    ``unfinished`` is the phase of a rank whose console was killed.
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
        """Whether the rank has ended its case, or has ended itself."""
        return self in (RankPhase.DONE, RankPhase.ERROR, RankPhase.LOST, RankPhase.ENDED)

    @property
    def is_broken(self) -> bool:
        """Whether the rank ended in an exception, or its connection was lost."""
        return self in (RankPhase.ERROR, RankPhase.LOST)

    @property
    def is_before_work(self) -> bool:
        """Whether the rank has not reported progress in a case yet."""
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
    """The activities of a rank in a case that spbench itself acts on; benchmarks name others.

    ``running`` is that of a program, which reports no progress but the number of its lines;
    ``waiting`` is that of a rank whose program waits for a line of another's.
    """

    IMPORT = "import"
    WARMUP = "warmup"
    TIMING = "timing"
    RUNNING = "running"
    WAITING = "waiting"


TIMED = frozenset({Activity.WARMUP, Activity.TIMING, Activity.RUNNING})
"""The activities of the timed part of a case."""


class LogLevel(StrEnum):
    """The level of a rank's log event; some levels are messages between ranks and console."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    LINE = "line"
    """A line of a benchmark's own output."""
    WHERE = "where"
    """The answer of a rank that was asked what it does; in views also a traceback."""
    LOADING = "loading"
    """The rank is about to load torch, which can keep its heartbeat waiting."""
    PRINTED = "printed"
    """A program printed a line for which another rank waits; the others are told."""
    BROKEN_OFF = "broken off"
    """A program ended as it should not; the others are told."""
    ORPHANED = "orphaned"
    """The launcher's helper that has started the rank has ended."""
