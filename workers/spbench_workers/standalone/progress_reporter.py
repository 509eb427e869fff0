"""Signs of progress on stderr, where a case's own lines leave the user waiting."""

from __future__ import annotations

import sys
from threading import Event, Thread
from time import monotonic

PATIENCE = 2.0
"""Seconds of silence after which something is said."""
_RARELY = 30.0
"""Seconds from one sentence to the next of a phase that goes on and on."""


class ProgressReporter:
    """The silence of rank 0's output: a thread ends it on stderr once it has lasted.

    It wakes twice a second, and writes where nothing was written for `PATIENCE` seconds, in one
    phase more and more rarely.
    """

    def __init__(self) -> None:
        self._spoken = self._begun = monotonic()
        self._pause = PATIENCE
        self._phase = "start"
        self._share: float | None = None
        self._ended = Event()
        self._thread = Thread(target=self._listen, name="silence", daemon=True)
        self._thread.start()

    def note_progress(self, phase: str, done: int, total: int) -> None:
        """Note how far the case is."""
        if phase != self._phase:
            self._phase = phase
            self._begun = monotonic()
            self._pause = PATIENCE
        self._share = done / total if total > 1 else None

    def note_output(self) -> None:
        """Note that a line was written."""
        self._spoken = monotonic()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def next_message(self, now: float) -> str | None:
        """Return what to say at a time; None where it is not yet time to speak."""
        if now - max(self._spoken, self._begun) < self._pause:
            return None
        self._spoken, self._pause = now, min(2 * self._pause, _RARELY)
        return f"spbench_workers: {self._phase}: {self._far(now - self._begun)}"

    def _far(self, seconds: float) -> str:
        """Return how far the phase is after so many seconds, and how long it takes yet."""
        so_far = f"{seconds:.0f} s so far"
        if self._share is None:
            return so_far
        yet = f", {seconds / self._share - seconds:.0f} s yet" if self._share else ""
        return f"{100 * self._share:.0f} %, {so_far}{yet}"

    def _listen(self) -> None:
        while not self._ended.wait(0.5):
            if said := self.next_message(monotonic()):
                sys.stderr.write(said + "\n")
                sys.stderr.flush()
