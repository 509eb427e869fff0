"""What the ranks of a run did when, each by its own clock: cases, phases, batches of iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench.report.comparison.model import HEADLINE
from spbench.report.formats.trace.clocks import JobClocks
from spbench.stats.summary import median
from spbench_core.events.fields import Event
from spbench_core.events.statuses import Activity, LogLevel

_NOTABLE = frozenset({LogLevel.WARNING, LogLevel.ERROR})
"""Levels of log lines that are marked."""
_AFTER_WARMUP = Activity.TIMING
"""The activity of which each step is told by a rank when all ranks have ended it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a rank did, or the console (``rank`` is None).

    Attributes:
        start: Seconds since the epoch, by the clock of ``host``.
        end: The same; None for a moment.
        about: What else is known of it.
    """

    job: int
    host: str
    rank: int | None
    name: str
    kind: str
    start: float
    end: float | None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _RankPosition:
    """Where a rank is."""

    host: str
    last: float
    begun: float | None = None
    case: tuple[str, int] | None = None
    case_since: float = 0.0
    phase: str | None = None
    phase_since: float = 0.0
    batch_end: float = 0.0
    warmups: int = 0
    warming: bool = False
    before: float | None = None


class RunSpans:
    """Takes in the events of a run; `spans` and `clocks` are what they say."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.clocks: dict[int, JobClocks] = {}
        self.console = ""
        self._job: tuple[int, float, str] | None = None
        self._ranks: dict[int, _RankPosition] = {}

    def add_events(self, events: Iterable[Event]) -> None:
        """Take in all events of a run; what was open at its end is closed."""
        last = 0.0
        for event in events:
            self._take(event)
            last = event["time"]
        self._end_job(last, "cut")

    def _take(self, event: Event) -> None:
        rank = event.get("rank")
        if "seq" not in event:
            if self._job is not None:
                self.clocks[self._job[0]].note_console_event(event["time"])
            taker = getattr(self, f"_on_{event['event']}", None)
            if taker is not None:
                taker(event)
        elif self._job is not None and rank is not None and event.get("job") == self._job[0]:
            self._take_of_rank(event, rank)

    def _take_of_rank(self, event: Event, rank: int) -> None:
        position = self._ranks.get(rank)
        if position is None:
            if "host" not in event:
                return
            position = _RankPosition(event["host"], event["time"], begun=event["time"])
            self._ranks[rank] = position
        self._clocks.note_rank_event(position.host, event["time"])
        taker: Callable[[Event, int, _RankPosition], None] | None
        taker = getattr(self, f"_of_rank_{event['event']}", None)
        if taker is not None:
            taker(event, rank, position)
        position.last = event["time"]

    @property
    def _clocks(self) -> JobClocks:
        assert self._job is not None, "ranks speak within a job"
        return self.clocks[self._job[0]]

    def _add(self, name: str, kind: str, start: float, end: float | None, **about: Any) -> None:
        """Add what the console did."""
        job = self._job[0] if self._job else 0
        self.spans.append(Span(job, self.console, None, name, kind, start, end, about))

    def _add_of(
        self, rank: int, name: str, kind: str, start: float, end: float | None, **about: Any
    ) -> None:
        assert self._job is not None, "ranks speak within a job"
        host = self._ranks[rank].host
        self.spans.append(Span(self._job[0], host, rank, name, kind, start, end, about))

    # The console's events

    def _on_run_start(self, event: Event) -> None:
        host = event["environment"].get("host")
        self.console = host if isinstance(host, str) else ""

    def _on_job_start(self, event: Event) -> None:
        self._end_job(event["time"], "cut")
        self._job = (event["job"], event["time"], f"job {event['job']}: {event['launcher']}")
        self.clocks[event["job"]] = JobClocks(self.console or None, event["time"])

    def _on_job_end(self, event: Event) -> None:
        self._end_job(event["time"], event["reason"])

    def _on_case_judged(self, event: Event) -> None:
        about = {"reason": event["reason"]} if event["reason"] else {}
        self._add(f"{event['case']}: {event['status']}", "verdict", event["time"], None, **about)

    def _on_rank_lost(self, event: Event) -> None:
        name = f"rank {event['rank']} on {event['host']} lost"
        self._add(name, "lost", event["time"], None, reason=event["reason"])

    def _end_job(self, time: float, reason: str | None) -> None:
        if self._job is None:
            return
        for rank, position in self._ranks.items():
            self._end_case(rank, position, position.last, status="cut")
        about = {"reason": reason} if reason else {}
        _, started, name = self._job
        self._add(name, "job", started, max(time, started), **about)
        self._job = None
        self._ranks = {}

    # The ranks' events

    def _of_rank_ready(self, event: Event, rank: int, position: _RankPosition) -> None:
        if position.begun is not None:
            self._add_of(rank, "start", "start", position.begun, event["time"])
            position.begun = None

    def _of_rank_case_start(self, event: Event, rank: int, position: _RankPosition) -> None:
        self._end_case(rank, position, event["time"], status="cut")
        position.case = (event["case"], event["repeat"])
        position.case_since = position.batch_end = event["time"]
        position.phase = None
        position.warmups = 0
        position.before = None
        position.warming = False

    def _of_rank_progress(self, event: Event, rank: int, position: _RankPosition) -> None:
        self._meet(event, position)
        phase = event["phase"]
        if phase != position.phase:
            self._end_phase(rank, position, event["time"])
            position.phase = phase
            position.phase_since = event["time"]
            position.batch_end = event["time"]

    def _meet(self, event: Event, position: _RankPosition) -> None:
        """Note a collective between two of a rank's events.

        Warming up begins at a barrier, and after each batch of timed iterations, which ranks tell
        before, they agree on the slowest. Benchmarks without a warm-up of that kind are left out.
        """
        phase = event["phase"]
        done = event["done"]
        if phase == Activity.WARMUP:
            if done == 0:
                position.warmups += 1
                position.warming = True
                position.before = event["time"]
            return
        if phase == _AFTER_WARMUP and position.warming and position.before is not None:
            meeting = (position.case, position.warmups, done)
            self._clocks.note_meeting(meeting, position.host, position.before, event["time"])
        position.before = None

    def _of_rank_samples(self, event: Event, rank: int, position: _RankPosition) -> None:
        position.before = event["time"]
        values = event["values"]
        if event["metric"] != HEADLINE or not values:
            return
        # A batch is told right after its last iteration; its first began as long before.
        start = max(event["time"] - sum(values) / 1000.0, position.batch_end)
        about = {"median_ms": median(values), "max_ms": max(values)}
        name = f"{len(values)} iterations"
        self._add_of(rank, name, "iterations", start, max(start, event["time"]), **about)
        position.batch_end = event["time"]

    def _of_rank_check(self, event: Event, rank: int, position: _RankPosition) -> None:
        if not event["passed"]:
            name = f"check {event['name']} failed"
            detail = event.get("detail", "")
            self._add_of(rank, name, "check", event["time"], None, detail=detail)

    def _of_rank_log(self, event: Event, rank: int, position: _RankPosition) -> None:
        if event["level"] in _NOTABLE:
            self._add_of(rank, event["message"][:200], event["level"], event["time"], None)

    def _of_rank_case_end(self, event: Event, rank: int, position: _RankPosition) -> None:
        self._end_case(rank, position, event["time"], status=event["status"])

    def _end_phase(self, rank: int, position: _RankPosition, time: float) -> None:
        if position.phase is not None:
            start = position.phase_since
            self._add_of(rank, position.phase, "phase", start, max(time, start))
        position.phase = None

    def _end_case(self, rank: int, position: _RankPosition, time: float, status: str) -> None:
        self._end_phase(rank, position, time)
        if position.case is not None:
            (case, repeat) = position.case
            start = position.case_since
            about = {"repeat": repeat, "status": status}
            self._add_of(rank, case, "case", start, max(time, start), **about)
        position.case = None
