"""Parts of a run's state: its ranks, its launches, its description, and ignored events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench_core.events.rank_facts import RankFacts
from spbench_core.events.statuses import JobStatus, RankPhase, RunStatus


@dataclass(slots=True)
class RankState:
    """One rank of the job that runs now, or ran last."""

    rank: int
    facts: RankFacts
    phase: RankPhase = RankPhase.STARTING
    activity: str = ""
    """The benchmark's name of what it does while its phase is ``working``."""
    phase_since: float = 0.0
    """When it reported its activity first, by its own clock."""
    case: str | None = None
    repeat: int = 0
    done: int = 0
    total: int = 0
    last_ms: float | None = None
    has_timed: float = 0.0
    """When its last times came, by its own clock."""
    last_heard: float = 0.0

    @property
    def host(self) -> str:
        """Its host."""
        return self.facts.host

    @property
    def shown_phase(self) -> str:
        """Its activity, or else its phase."""
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
    status: JobStatus = JobStatus.STARTING
    finished: float | None = None
    reason: str | None = None
    ranks: dict[int, RankFacts] = field(default_factory=dict)
    """The facts of each rank that is ready."""
    first_case: float | None = None
    """When a rank began the first case, by its own clock."""


@dataclass(slots=True)
class RunInfo:
    """The description of a run: its suite, arguments, seed, times and verdict."""

    id: str
    suite: str
    description: str
    argv: tuple[str, ...]
    seed: int | None
    started: float
    environment: Mapping[str, Any]
    finished: float | None = None
    verdict: RunStatus | None = None
    exit_code: int | None = None
    load_after: float | None = None
    resumed: list[Mapping[str, Any]] = field(default_factory=list)
    """When and where the run was resumed, and how many cases ran again."""


@dataclass(slots=True)
class IgnoredEvents:
    """The events that are illegal by the state machines, and changed nothing."""

    count: int = 0
    first: str = ""

    def add(self, sentence: str) -> None:
        """Count an event; the sentence on the first one is kept."""
        self.count += 1
        self.first = self.first or sentence

    @property
    def finding(self) -> str | None:
        """The finding on these events; None if every event was legal."""
        if not self.count:
            return None
        events = "1 event contradicts" if self.count == 1 else f"{self.count} events contradict"
        return f"{events} the events before and changed nothing: {self.first}"
