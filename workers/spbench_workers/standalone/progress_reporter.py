"""Progress on stderr while a case prints no lines."""

from __future__ import annotations

import sys
from threading import Event, Thread
from time import monotonic

QUIET_SECONDS = 2.0
"""Seconds without output after which progress is reported."""
_MAX_PAUSE_SECONDS = 30.0
_POLL_SECONDS = 0.5


class ProgressReporter:
    """A thread that reports progress on stderr when rank 0 has been quiet for a while.

    Within one phase the pause between reports doubles, up to half a minute.
    """

    def __init__(self) -> None:
        self._last_output = self._phase_start = monotonic()
        self._pause = QUIET_SECONDS
        self._phase = "start"
        self._share: float | None = None
        self._closed = Event()
        self._thread = Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def note_progress(self, phase: str, done: int, total: int) -> None:
        """Update the progress of the case."""
        if phase != self._phase:
            self._phase = phase
            self._phase_start = monotonic()
            self._pause = QUIET_SECONDS
        self._share = done / total if total > 1 else None

    def note_output(self) -> None:
        """Note that a line was printed."""
        self._last_output = monotonic()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def next_message(self, now: float) -> str | None:
        """Return the report that is due at a time, or None."""
        if now - max(self._last_output, self._phase_start) < self._pause:
            return None
        self._last_output = now
        self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)
        return f"spbench_workers: {self._phase}: {self._describe(now - self._phase_start)}"

    def _describe(self, seconds: float) -> str:
        """Return the progress of the phase after some seconds, and its remaining time."""
        so_far = f"{seconds:.0f} s so far"
        if self._share is None:
            return so_far
        remaining = f", about {seconds / self._share - seconds:.0f} s left" if self._share else ""
        return f"{100 * self._share:.0f} %, {so_far}{remaining}"

    def _run(self) -> None:
        while not self._closed.wait(_POLL_SECONDS):
            if message := self.next_message(monotonic()):
                sys.stderr.write(message + "\n")
                sys.stderr.flush()
