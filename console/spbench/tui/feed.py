"""A watched run: its events, live or replayed, and the resulting state."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spbench.engine.remaining_time import estimate_remaining
from spbench.engine.run_estimate import NO_ESTIMATE
from spbench.errors import SpbenchError
from spbench.record.case_state import CaseState
from spbench.record.live_stragglers import LiveStragglers
from spbench.record.noise import find_disturbances
from spbench.record.number_formatting import format_status
from spbench.record.rank_rows import RankRows
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import EventTail, RecordedEvents
from spbench.record.runs.playback import Playback
from spbench.record.state import RunState
from spbench_core.events.fields import Event
from spbench_core.events.statuses import CaseStatus, LogLevel, RunStatus

POLL_INTERVAL = 0.1
"""Time between two reads of the log or two batches of a replay, in seconds."""
BATCH_BYTES = 256 << 10
BATCH_EVENTS = 2_000
APPLY_SECONDS = 0.008
PAUSE_SECONDS = 0.001
"""Times of a slice of events and of the pause behind it, in which keys are handled."""
STRAGGLERS_INTERVAL = 0.5
"""Time between two searches for stragglers, in seconds; one of 4,096 ranks takes 3 ms."""
MAX_LOG_LINES = 10_000
REPLAY_SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, None)
"""The speeds that keys step through, with None for as fast as possible."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line of a rank."""

    time: float
    rank: int
    level: str
    message: str


class EventSource(Protocol):
    """A source of events; ``skipped`` describes unreadable parts of the log."""

    @property
    def skipped(self) -> str | None: ...

    def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield batches of events in order, until no more can follow."""


class LiveSource:
    """The event log of a run that may still be running.

    Attributes:
        remote_host: The host of the run's controller; None if it is this host.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.remote_host: str | None = None
        self._folder = folder
        self._tail = EventTail(folder.events)

    @property
    def skipped(self) -> str | None:
        return self._tail.skipped_message

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the recorded and then new events, until run or controller has ended."""
        self.remote_host = await asyncio.to_thread(self._folder.find_other_host)
        alive: bool | None = True
        while True:
            events = await asyncio.to_thread(self._tail.read, BATCH_BYTES)
            if events:
                yield events
                # The events of a resumed run continue after its first end.
                if events[-1]["event"] == "run_end" and self._tail.at_end:
                    return
            elif not self._tail.at_end:
                continue  # inside a line that is longer than BATCH_BYTES
            elif alive is False:
                return
            else:
                # Checked before the next read, so that its last events are still read.
                alive = await asyncio.to_thread(self._folder.is_alive)
            if self._tail.at_end:
                await asyncio.sleep(POLL_INTERVAL)


class ReplaySource:
    """The events of a recorded run at an adjustable speed.

    Attributes:
        playing: Whether the replay is not paused.
        speed: The speed, where 1 is real time, or None for as fast as possible.
        played_count: The number of events replayed.
    """

    def __init__(self, events: Iterable[Event], speed: float | None) -> None:
        self._events = events
        self._playback = Playback(events, speed)
        self._applied_speed = speed
        self.speed = speed
        self.playing = True
        self.played_count = 0

    @property
    def skipped(self) -> str | None:
        return self._events.skipped_message if isinstance(self._events, RecordedEvents) else None

    def step_speed(self, faster: bool) -> None:
        """Change the speed to the next one of `REPLAY_SPEEDS`, up or down."""
        # None, the unlimited speed, cannot be compared with numbers.
        order = [math.inf if speed is None else speed for speed in REPLAY_SPEEDS]
        current = math.inf if self.speed is None else self.speed
        if faster:
            index = next((i for i, speed in enumerate(order) if speed > current), len(order) - 1)
        else:
            index = max((i for i, speed in enumerate(order) if speed < current), default=0)
        self.speed = REPLAY_SPEEDS[index]

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the events that are due, until all are replayed."""
        done = False
        while not done:
            self._apply_controls(time.monotonic())
            due, done = await asyncio.to_thread(self._step, time.monotonic())
            if due:
                yield due
            await asyncio.sleep(0 if len(due) == BATCH_EVENTS else POLL_INTERVAL)

    def _apply_controls(self, now: float) -> None:
        """Apply changes of pause and speed, at a time when no thread reads the events."""
        if self.playing == self._playback.paused:
            if self.playing:
                self._playback.resume(now)
            else:
                self._playback.pause(now)
        if self.speed != self._applied_speed:
            self._applied_speed = self.speed
            self._playback.set_speed(self.speed, now)

    def _step(self, now: float) -> tuple[Sequence[Event], bool]:
        due = self._playback.take_due(now, BATCH_EVENTS)
        self.played_count = self._playback.position[0]
        return due, self._playback.done


class Feed:
    """A watched run: its state, kept up to date with the events of a source.

    Attributes:
        log_count: The number of log lines so far; `logs` has only the newest ones.
        version: Grows with every change of the state.
        event_count: The number of events applied.
        now: The time of the newest event, in seconds since the epoch.
        ended: Whether no more events can follow.
        failure: A message on why the log cannot be read further.
        estimate: The estimated duration of the cases; empty while it is unknown.
        compared_side: The other side of the comparison for which the run was started, if any.
    """

    def __init__(self, folder: RunFolder, source: EventSource) -> None:
        self.folder = folder
        self.source = source
        self.state = RunState()
        self.rows = RankRows(self.state)
        self.stragglers = LiveStragglers(self.rows, self.state)
        self.logs: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self.log_count = 0
        self.version = 0
        self.event_count = 0
        self.now = 0.0
        self.ended = False
        self.failure: str | None = None
        self.estimate = NO_ESTIMATE
        self.compared_side: str | None = None
        self._stragglers_due = 0.0

    @property
    def status(self) -> RunStatus:
        """The status of the run; ``unfinished`` if its controller was killed."""
        run = self.state.run
        if run is not None and run.status is not None:
            return run.status
        return RunStatus.UNFINISHED if self.ended else RunStatus.RUNNING

    @property
    def status_text(self) -> str:
        """The status with its sign; ``replay`` while a recorded run is played again."""
        is_replay = isinstance(self.source, ReplaySource) and not self.ended
        return (
            "▶ replay" if is_replay else format_status(self.status, self.state.fault_outcome or "")
        )

    def case_status(self, case: CaseState) -> CaseStatus:
        """Return the status of a case; ``unfinished`` if its controller was killed."""
        abandoned = self.status == RunStatus.UNFINISHED and not case.status.is_final
        return CaseStatus.UNFINISHED if abandoned else case.status

    def runs_suite(self, suite: Path | None) -> bool:
        """Return whether the command of the run names the file of a suite."""
        run = self.state.run
        return run is not None and suite is not None and str(suite) in run.argv

    @property
    def remaining(self) -> float | None:
        """The estimated time until the end, in seconds; None if unknown or ended."""
        return None if self.ended else estimate_remaining(self.state, self.estimate, self.now)

    @property
    def remote_host(self) -> str | None:
        """The host of the run's controller; None if it is this host."""
        return self.source.remote_host if isinstance(self.source, LiveSource) else None

    async def follow(self) -> None:
        """Apply all events of the source; an unreadable or invalid event ends it too."""
        try:
            async for events in self.source.batches():
                await self._apply_batch(events)
        except SpbenchError as error:
            self.failure = str(error)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            number = self.event_count + 1
            self.failure = f"{self.folder.events}: event {number} is none of a run ({reason})"
        self.state.skipped_message = self.source.skipped
        if self.state.run is None:
            self.failure = self.failure or self.state.skipped_message
        self.ended = True
        self.version += 1

    async def _apply_batch(self, events: Sequence[Event]) -> None:
        until = time.monotonic() + APPLY_SECONDS
        for event in events:
            self._apply(event)
            if time.monotonic() > until:
                self.version += 1
                await asyncio.sleep(PAUSE_SECONDS)
                until = time.monotonic() + APPLY_SECONDS
        if until >= self._stragglers_due:
            self._stragglers_due = until + STRAGGLERS_INTERVAL
            self.stragglers.update()
        self.state.skipped_message = self.source.skipped
        self.version += 1

    def _apply(self, event: Event) -> None:
        self.state.apply(event)
        self.rows.update(event)
        self.event_count += 1
        self.now = event["time"]
        if event["event"] == "case_judged":
            # Those of thousands of cases at once, for a table, would delay keys.
            find_disturbances(self.state.cases[event["case"]])
        elif event["event"] == "log":
            self._add_log(event, event["level"], event["message"])
        elif event["event"] == "case_end" and (error := event.get("error")):
            self._add_log(event, LogLevel.ERROR, error.get("message", "an error"))
            if error.get("traceback"):
                self._add_log(event, LogLevel.WHERE, error["traceback"])

    def _add_log(self, event: Event, level: str, message: str) -> None:
        self.log_count += 1
        self.logs.append(LogLine(event["time"], event["rank"], level, message))
