"""A watched run: events from its folder, as they come or played again, and the state they make."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spbench.engine.estimate import NO_ESTIMATE
from spbench.engine.remaining_time import remaining
from spbench.errors import SpbenchError
from spbench.record.case_state import CaseState
from spbench.record.live_stragglers import LiveStragglers
from spbench.record.rank_rows import RankRows
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.follow import EventTail, RecordedEvents
from spbench.record.runs.playback import Playback
from spbench.record.state import RunState
from spbench_core.events.fields import Event
from spbench_core.events.statuses import CaseStatus, LogLevel, RunStatus

POLL_INTERVAL = 0.1
"""Seconds between two looks at the log, and the least between two batches of a replay."""
BATCH_BYTES = 256 << 10
BATCH_EVENTS = 2_000
APPLY_SECONDS = 0.008
PAUSE_SECONDS = 0.001
"""Seconds of applying events at a stretch, and of leaving the loop to keys in between."""
MAX_LOG_LINES = 10_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line of a rank."""

    time: float
    rank: int
    level: str
    message: str


class EventSource(Protocol):
    """A source of a feed's events; ``left_out`` says what of their log could not be read."""

    @property
    def left_out(self) -> str | None: ...

    def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield events in order, in batches; it ends when no more can come."""


class LiveSource:
    """Follows the event log of a run that may still be going on.

    Attributes:
        elsewhere: The host of the run's console, where that is another than this.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.remote_host: str | None = None
        self._folder = folder
        self._tail = EventTail(folder.events)

    @property
    def left_out(self) -> str | None:
        return self._tail.left_out

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield what is there, then what comes, until the run ends or its console is gone."""
        self.remote_host = await asyncio.to_thread(self._folder.elsewhere)
        alive: bool | None = True
        while True:
            events = await asyncio.to_thread(self._tail.read, BATCH_BYTES)
            if events:
                yield events
                # a run that was resumed goes on behind the end that it had
                if events[-1]["event"] == "run_end" and self._tail.at_end:
                    return
            elif not self._tail.at_end:
                continue  # within a line that is longer than what one look takes in
            elif alive is False:
                return
            else:
                # Asked before the next read: what it wrote as its last is still seen.
                alive = await asyncio.to_thread(self._folder.alive)
            if self._tail.at_end:
                await asyncio.sleep(POLL_INTERVAL)


class ReplaySource:
    """Plays a recorded run again.

    Attributes:
        playing: Whether it goes on; it can be stopped and started.
        speed: How fast; None is as fast as can be. It can be changed.
        played: The number of events played.
    """

    def __init__(self, events: Iterable[Event], speed: float | None) -> None:
        self._events = events
        self._playback = Playback(events, speed)
        self._set_speed = speed
        self.speed = speed
        self.playing = True
        self.played = 0

    @property
    def left_out(self) -> str | None:
        return self._events.left_out if isinstance(self._events, RecordedEvents) else None

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the events that are due, until all are played."""
        done = False
        while not done:
            self._apply_controls(time.monotonic())
            due, done = await asyncio.to_thread(self._step, time.monotonic())
            if due:
                yield due
            await asyncio.sleep(0 if len(due) == BATCH_EVENTS else POLL_INTERVAL)

    def _apply_controls(self, now: float) -> None:
        """Apply a change of pause or speed, while no thread reads the events."""
        if self.playing == self._playback.paused:
            (self._playback.resume if self.playing else self._playback.pause)(now)
        if self.speed != self._set_speed:
            self._set_speed = self.speed
            self._playback.set_speed(self.speed, now)

    def _step(self, now: float) -> tuple[Sequence[Event], bool]:
        due = self._playback.due(now, BATCH_EVENTS)
        self.played = self._playback.position[0]
        return due, self._playback.done


class Feed:
    """A watched run: its state, kept up to date with the events of a source.

    Attributes:
        version: Grows with every change of the state.
        now: The time of the newest event, in seconds since the epoch.
        ended: Whether no more events can come.
        failure: Why the log cannot be read further, in one sentence.
        estimate: The duration of its cases; empty as long as it is unknown.
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
        self.events = 0
        self.now = 0.0
        self.ended = False
        self.failure: str | None = None
        self.estimate = NO_ESTIMATE

    @property
    def status(self) -> RunStatus:
        """The run's verdict, ``running``, or ``unfinished`` where its console was killed."""
        run = self.state.run
        if run is not None and run.verdict is not None:
            return run.verdict
        return RunStatus.UNFINISHED if self.ended else RunStatus.RUNNING

    def case_status(self, case: CaseState) -> CaseStatus:
        """Return how a case stands; one that a killed console has left is ``unfinished`` too."""
        left = self.status == RunStatus.UNFINISHED and not case.status.is_final
        return CaseStatus.UNFINISHED if left else case.status

    @property
    def remaining(self) -> float | None:
        """The estimated seconds until its end; None if they are unknown, or if it has ended."""
        return None if self.ended else remaining(self.state, self.estimate, self.now)

    @property
    def remote_host(self) -> str | None:
        """The host of the run's console, where that is another than this."""
        return self.source.remote_host if isinstance(self.source, LiveSource) else None

    async def follow(self) -> None:
        """Take all events in until no more can come; what is wrong with them ends it too."""
        try:
            async for events in self.source.batches():
                await self._take(events)
        except SpbenchError as error:
            self.failure = str(error)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            self.failure = f"{self.folder.events}: event {self.events + 1} is none of a run ({why})"
        self.state.left_out = self.source.left_out
        if self.state.run is None:
            self.failure = self.failure or self.state.left_out
        self.ended = True
        self.version += 1

    async def _take(self, events: Sequence[Event]) -> None:
        until = time.monotonic() + APPLY_SECONDS
        for event in events:
            self._apply(event)
            if time.monotonic() > until:
                self.version += 1
                await asyncio.sleep(PAUSE_SECONDS)
                until = time.monotonic() + APPLY_SECONDS
        self.stragglers.update()
        self.state.left_out = self.source.left_out
        self.version += 1

    def _apply(self, event: Event) -> None:
        self.state.apply(event)
        self.rows.take(event)
        self.events += 1
        self.now = event["time"]
        if event["event"] == "log":
            self._say(LogLine(event["time"], event["rank"], event["level"], event["message"]))
        elif event["event"] == "case_end" and (error := event.get("error")):
            moment = event["time"]
            rank = event["rank"]
            self._say(LogLine(moment, rank, LogLevel.ERROR, error.get("message", "an error")))
            if error.get("traceback"):
                self._say(LogLine(moment, rank, LogLevel.WHERE, error["traceback"]))

    def _say(self, line: LogLine) -> None:
        self.log_count += 1
        self.logs.append(line)
