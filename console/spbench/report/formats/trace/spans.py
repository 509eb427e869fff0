"""Spans of a run's ranks, by their own clocks: cases, phases, iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from spbench.report.comparison.model import HEADLINE
from spbench.report.formats.trace.clocks import JobClocks
from spbench.stats.summary import median
from spbench_core.events.fields import Event
from spbench_core.events.statuses import Activity, LogLevel

_NOTABLE = frozenset({LogLevel.WARNING, LogLevel.ERROR})
"""Levels of log lines that appear in the trace."""
_AFTER_WARMUP = Activity.TIMING
"""The activity in which ranks report a step after all ranks have ended it."""


@dataclass(frozen=True, slots=True)
class Span:
    """An activity of a rank, or of the console (``rank`` is None).

    Attributes:
        start: Seconds since the epoch, by the clock of ``host``.
        end: The same; None for an instant event.
        details: Further facts.
        lane: A number that differs between jobs that run at once; 0 unless it is a job.
    """

    job: int
    host: str
    rank: int | None
    name: str
    kind: str
    start: float
    end: float | None
    details: Mapping[str, Any] = field(default_factory=dict)
    lane: int = 0


@dataclass(slots=True)
class _RankPosition:
    """The current case, phase and warm-up of a rank."""

    job: _OpenJob
    rank: int
    host: str
    last_event_time: float
    begin_time: float | None = None
    case: tuple[str, int] | None = None
    case_since: float = 0.0
    phase: str | None = None
    phase_since: float = 0.0
    batch_end: float = 0.0
    warmups: int = 0
    is_warming_up: bool = False
    time_before_collective: float | None = None


@dataclass(frozen=True, slots=True)
class _OpenJob:
    """A job that has not ended, with the current positions of its ranks."""

    number: int
    name: str
    start_time: float
    lane: int
    clocks: JobClocks
    ranks: dict[int, _RankPosition] = field(default_factory=dict)


class RunSpans:
    """The spans of a run and the clocks of its jobs, built from events.

    Jobs on separate hosts may run at once.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.clocks: dict[int, JobClocks] = {}
        self.console = ""
        self._jobs: dict[int, _OpenJob] = {}

    def add_events(self, events: Iterable[Event]) -> None:
        """Process all events of a run; spans that are open at its end are closed."""
        last = 0.0
        for event in events:
            self._process(event)
            last = event["time"]
        self._end_all_jobs(last)

    def _process(self, event: Event) -> None:
        rank = event.get("rank")
        if "seq" not in event:
            for job in self._jobs.values():
                job.clocks.note_console_event(event["time"])
            handler = getattr(self, f"_handle_console_{event['event']}", None)
            if handler is not None:
                handler(event)
        elif rank is not None and event.get("job") in self._jobs:
            self._process_rank_event(event, rank, self._jobs[event["job"]])

    def _process_rank_event(self, event: Event, rank: int, job: _OpenJob) -> None:
        position = job.ranks.get(rank)
        if position is None:
            if "host" not in event:
                return
            position = _RankPosition(
                job, rank, event["host"], event["time"], begin_time=event["time"]
            )
            job.ranks[rank] = position
        job.clocks.note_rank_event(position.host, event["time"])
        handler: Callable[[Event, _RankPosition], None] | None
        handler = getattr(self, f"_handle_rank_{event['event']}", None)
        if handler is not None:
            handler(event, position)
        position.last_event_time = event["time"]

    def _add_console_instant(self, event: Event, name: str, kind: str, **details: Any) -> None:
        """Add an event of the console, in its job or the newest one."""
        job = event.get("job", max(self._jobs, default=0))
        self.spans.append(Span(job, self.console, None, name, kind, event["time"], None, details))

    def _add_rank_span(
        self,
        position: _RankPosition,
        name: str,
        kind: str,
        start: float,
        end: float | None,
        **details: Any,
    ) -> None:
        job_number = position.job.number
        self.spans.append(
            Span(job_number, position.host, position.rank, name, kind, start, end, details)
        )

    def _handle_console_run_start(self, event: Event) -> None:
        host = event["environment"].get("host")
        self.console = host if isinstance(host, str) else ""

    def _handle_console_run_resumed(self, event: Event) -> None:
        self._end_all_jobs(event["time"])

    def _handle_console_job_start(self, event: Event) -> None:
        number = event["job"]
        self._end_job(number, event["time"], "cut")
        used_lanes = {job.lane for job in self._jobs.values()}
        lane = next(lane for lane in count() if lane not in used_lanes)
        clocks = JobClocks(self.console or None, event["time"])
        name = f"job {number}: {event['launcher']}"
        self.clocks[number] = clocks
        self._jobs[number] = _OpenJob(number, name, event["time"], lane, clocks)

    def _handle_console_job_end(self, event: Event) -> None:
        self._end_job(event["job"], event["time"], event["reason"])

    def _handle_console_case_judged(self, event: Event) -> None:
        details = {"reason": event["reason"]} if event["reason"] else {}
        name = f"{event['case']}: {event['status']}"
        self._add_console_instant(event, name, "verdict", **details)

    def _handle_console_rank_lost(self, event: Event) -> None:
        name = f"rank {event['rank']} on {event['host']} lost"
        self._add_console_instant(event, name, "lost", reason=event["reason"])

    def _end_all_jobs(self, time: float) -> None:
        for number in list(self._jobs):
            self._end_job(number, time, "cut")

    def _end_job(self, number: int, time: float, reason: str | None) -> None:
        job = self._jobs.pop(number, None)
        if job is None:
            return
        for position in job.ranks.values():
            self._end_case(position, position.last_event_time, status="cut")
        details = {"reason": reason} if reason else {}
        end = max(time, job.start_time)
        self.spans.append(
            Span(
                number, self.console, None, job.name, "job", job.start_time, end, details, job.lane
            )
        )

    def _handle_rank_ready(self, event: Event, position: _RankPosition) -> None:
        if position.begin_time is not None:
            self._add_rank_span(position, "start", "start", position.begin_time, event["time"])
            position.begin_time = None

    def _handle_rank_case_start(self, event: Event, position: _RankPosition) -> None:
        self._end_case(position, event["time"], status="cut")
        position.case = (event["case"], event["repeat"])
        position.case_since = position.batch_end = event["time"]
        position.phase = None
        position.warmups = 0
        position.time_before_collective = None
        position.is_warming_up = False

    def _handle_rank_progress(self, event: Event, position: _RankPosition) -> None:
        self._note_collective(event, position)
        phase = event["phase"]
        if phase != position.phase:
            self._end_phase(position, event["time"])
            position.phase = phase
            position.phase_since = event["time"]
            position.batch_end = event["time"]

    def _note_collective(self, event: Event, position: _RankPosition) -> None:
        """Note a collective between two events of a rank.

        The warm-up begins with a barrier. After each batch of timed iterations, which ranks report
        first, they agree on the slowest rank. Benchmarks without such a warm-up are skipped.
        """
        phase = event["phase"]
        done_iterations = event["done"]
        if phase == Activity.WARMUP:
            if done_iterations == 0:
                position.warmups += 1
                position.is_warming_up = True
                position.time_before_collective = event["time"]
            return
        if (
            phase == _AFTER_WARMUP
            and position.is_warming_up
            and position.time_before_collective is not None
        ):
            collective = (position.case, position.warmups, done_iterations)
            position.job.clocks.note_collective(
                collective, position.host, position.time_before_collective, event["time"]
            )
        position.time_before_collective = None

    def _handle_rank_samples(self, event: Event, position: _RankPosition) -> None:
        position.time_before_collective = event["time"]
        times_ms = event["values"]
        if event["metric"] != HEADLINE or not times_ms:
            return
        # A batch is reported right after its last iteration, so its start follows from its length.
        start = max(event["time"] - sum(times_ms) / 1000.0, position.batch_end)
        details = {"median_ms": median(times_ms), "max_ms": max(times_ms)}
        name = f"{len(times_ms)} iterations"
        self._add_rank_span(
            position, name, "iterations", start, max(start, event["time"]), **details
        )
        position.batch_end = event["time"]

    def _handle_rank_check(self, event: Event, position: _RankPosition) -> None:
        if not event["passed"]:
            name = f"check {event['name']} failed"
            detail = event.get("detail", "")
            self._add_rank_span(position, name, "check", event["time"], None, detail=detail)

    def _handle_rank_log(self, event: Event, position: _RankPosition) -> None:
        if event["level"] in _NOTABLE:
            self._add_rank_span(
                position, event["message"][:200], event["level"], event["time"], None
            )

    def _handle_rank_case_end(self, event: Event, position: _RankPosition) -> None:
        self._end_case(position, event["time"], status=event["status"])

    def _end_phase(self, position: _RankPosition, time: float) -> None:
        if position.phase is not None:
            start = position.phase_since
            self._add_rank_span(position, position.phase, "phase", start, max(time, start))
        position.phase = None

    def _end_case(self, position: _RankPosition, time: float, status: str) -> None:
        self._end_phase(position, time)
        if position.case is not None:
            case, repeat = position.case
            start = position.case_since
            details = {"repeat": repeat, "status": status}
            self._add_rank_span(position, case, "case", start, max(time, start), **details)
        position.case = None
