"""The playback of a recorded run: its events as they come due, by a clock of the caller's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path

import spbench
from spbench.record.runs.folder import RunFolder
from spbench_core.events.fields import Event

LONGEST_PAUSE = 2.0
"""Seconds of a run's time that a silence in it lasts at most when it is played."""
BATCH = 2_000
"""Events that are given out at once, unless it is told otherwise."""


class Playback:
    """A playback: it gives out events as far apart as they were, at a speed that can change.

    Args:
        events: The events, in order; they are taken one by one, as they come due.
        speed: Seconds of the run in one of the clock; None or infinity for as fast as can be.
        longest_pause: A longer silence between two events is cut to this, in seconds of the run.
    """

    def __init__(
        self,
        events: Iterable[Event],
        speed: float | None = 1.0,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self._total = len(events) if isinstance(events, Sized) else None
        self._events = iter(events)
        self._longest_pause = longest_pause
        self._next: Event | None = None
        self._next_at = 0.0
        self._latest = -math.inf
        self._given = 0
        self._time = 0.0
        self._read_at: float | None = None
        self._paused = False
        self._ended = False
        self._speed = math.inf
        self._set(speed)

    @property
    def done(self) -> bool:
        """Whether all events have been given out."""
        return self._peek() is None

    @property
    def position(self) -> tuple[int, int | None]:
        """The number of events given out, and of all where it is known."""
        return self._given, self._total

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._paused

    def take_due(self, now: float, limit: int = BATCH) -> list[Event]:
        """Return the events that are due at a reading of the clock, ``limit`` at most.

        Where more are due, the run's time waits for them: it does not go on ahead of its events.
        """
        self._advance(now)
        given: list[Event] = []
        while not self._paused and len(given) < limit:
            event = self._peek()
            if event is None or not self._is_due():
                break
            given.append(event)
            self._next = None
        self._given += len(given)
        if len(given) == limit or self._speed == math.inf:
            self._time = self._next_at
        return given

    def wait(self, now: float) -> float:
        """Return the seconds of the clock until the next event is due; infinity where none is."""
        self._advance(now)
        if self._paused or self._peek() is None:
            return math.inf
        return 0.0 if self._is_due() else (self._next_at - self._time) / self._speed

    def set_speed(self, speed: float | None, now: float) -> None:
        """Go on at another speed."""
        self._advance(now)
        self._set(speed)

    def pause(self, now: float) -> None:
        """Stand still."""
        self._advance(now)
        self._paused = True

    def resume(self, now: float) -> None:
        """Go on from where it stood."""
        self._advance(now)
        self._paused = False

    def _set(self, speed: float | None) -> None:
        if speed is not None and not speed > 0:
            raise ValueError(f"a speed of {speed} is not above 0")
        self._speed = math.inf if speed is None else speed

    def _advance(self, now: float) -> None:
        """Bring the run's time to a reading of the clock, which begins with the first one."""
        passed = 0.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        if not self._paused and self._speed < math.inf:
            self._time += passed * self._speed

    def _is_due(self) -> bool:
        return self._next_at <= self._time or self._speed == math.inf

    def _peek(self) -> Event | None:
        """The next event, and when it is due in the run's time."""
        if self._next is None and not self._ended:
            self._next = next(self._events, None)
            if self._next is None:
                self._ended = True
            else:
                # Ranks' clocks differ, and their events mix: the run's time goes on only.
                time = self._next["time"]
                if self._latest > -math.inf:
                    self._next_at += min(max(0.0, time - self._latest), self._longest_pause)
                self._latest = max(self._latest, time)
        return self._next


def play_paced(
    playback: Playback, clock: Callable[[], float], sleep: Callable[[float], object]
) -> Iterator[Event]:
    """Yield the events of a playback as they come due, sleeping in between."""
    while not playback.done:
        yield from playback.take_due(clock())
        wait = playback.wait(clock())
        if 0 < wait < math.inf:
            sleep(wait)


def find_demo_run() -> RunFolder:
    """Return the folder of the demo's run (`python -m benchmarks.record_demo` records it)."""
    return RunFolder(Path(spbench.__file__).parent / "demo")
