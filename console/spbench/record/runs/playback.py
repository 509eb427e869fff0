"""The playback of a recorded run by the caller's clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path

import spbench
from spbench.record.runs.folder import RunFolder
from spbench_core.events.fields import Event

MAX_PAUSE = 2.0
"""Seconds of a run's time to which a silence is shortened in playback."""
BATCH = 2_000
"""The number of events that one call returns by default."""


class Playback:
    """A playback of events in their original rhythm, at a speed that can change.

    Args:
        events: The events, in order; they are read one by one when they are due.
        speed: Seconds of the run per second of the clock; None or infinity for no delay.
        max_pause: The longest silence between two events, in seconds of the run.
    """

    def __init__(
        self,
        events: Iterable[Event],
        speed: float | None = 1.0,
        max_pause: float = MAX_PAUSE,
    ) -> None:
        self._total = len(events) if isinstance(events, Sized) else None
        self._events = iter(events)
        self._max_pause = max_pause
        self._next: Event | None = None
        self._next_due = 0.0
        self._latest = -math.inf
        self._events_taken = 0
        self._time = 0.0
        self._last_clock: float | None = None
        self._paused = False
        self._ended = False
        self._speed = math.inf
        self._set_speed(speed)

    @property
    def done(self) -> bool:
        """Whether all events have been returned."""
        return self._peek() is None

    @property
    def position(self) -> tuple[int, int | None]:
        """The number of returned events, and of all events if it is known."""
        return self._events_taken, self._total

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._paused

    def take_due(self, now: float, limit: int = BATCH) -> list[Event]:
        """Return the events that are due at this reading of the clock, ``limit`` at most.

        If more are due, the run's time waits for them, so that it does not pass its events.
        """
        self._advance(now)
        due: list[Event] = []
        while not self._paused and len(due) < limit:
            event = self._peek()
            if event is None or not self._is_due():
                break
            due.append(event)
            self._next = None
        self._events_taken += len(due)
        if len(due) == limit or self._speed == math.inf:
            self._time = self._next_due
        return due

    def wait(self, now: float) -> float:
        """Return the seconds until the next event is due; infinity without one."""
        self._advance(now)
        if self._paused or self._peek() is None:
            return math.inf
        return 0.0 if self._is_due() else (self._next_due - self._time) / self._speed

    def set_speed(self, speed: float | None, now: float) -> None:
        """Continue at another speed."""
        self._advance(now)
        self._set_speed(speed)

    def pause(self, now: float) -> None:
        """Stop the run's time."""
        self._advance(now)
        self._paused = True

    def resume(self, now: float) -> None:
        """Continue after a pause."""
        self._advance(now)
        self._paused = False

    def _set_speed(self, speed: float | None) -> None:
        if speed is not None and not speed > 0:
            raise ValueError(f"a speed of {speed} is not above 0")
        self._speed = math.inf if speed is None else speed

    def _advance(self, now: float) -> None:
        """Advance the run's time to a reading of the clock; the first reading starts it."""
        elapsed = 0.0 if self._last_clock is None else now - self._last_clock
        self._last_clock = now
        if not self._paused and self._speed < math.inf:
            self._time += elapsed * self._speed

    def _is_due(self) -> bool:
        return self._next_due <= self._time or self._speed == math.inf

    def _peek(self) -> Event | None:
        """Return the next event, and set its due time in the run's time."""
        if self._next is None and not self._ended:
            self._next = next(self._events, None)
            if self._next is None:
                self._ended = True
            else:
                # Clocks of ranks differ, and their events mix: the run's time never goes back.
                time = self._next["time"]
                if self._latest > -math.inf:
                    self._next_due += min(max(0.0, time - self._latest), self._max_pause)
                self._latest = max(self._latest, time)
        return self._next


def play_paced(
    playback: Playback, clock: Callable[[], float], sleep: Callable[[float], object]
) -> Iterator[Event]:
    """Yield the events of a playback when they are due, sleeping in between."""
    while not playback.done:
        yield from playback.take_due(clock())
        wait = playback.wait(clock())
        if 0 < wait < math.inf:
            sleep(wait)


def find_demo_run() -> RunFolder:
    """Return the folder of the demo's run.

    `python -m benchmarks.record_demo` records it.
    """
    return RunFolder(Path(spbench.__file__).parent / "demo")
