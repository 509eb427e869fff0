"""Progress of long tasks: without it, a rank that computes would count as hung."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

INTERVAL = 0.1
"""Seconds from one report to the next."""


class Progress(Protocol):
    """The progress of a task. The function that does the task calls it."""

    def begin(self, total: int) -> None:
        """Note that the task has so many steps, each about as long as the others."""

    def advance(self, steps: float = 1) -> None:
        """Note steps as done."""


class _NoProgress:
    def begin(self, total: int) -> None:
        """Ignore the number of steps."""

    def advance(self, steps: float = 1) -> None:
        """Ignore the steps."""


NO_PROGRESS: Progress = _NoProgress()
"""Ignores the progress of a task."""


class PhaseProgress:
    """The progress of a phase of a case, reported ten times a second at most.

    Args:
        report: Reports the steps that are done, and all, such as
            ``partial(context.progress, "check")``.
        total: The number of steps, if it is known already.
    """

    def __init__(self, report: Callable[[int, int], None], total: int | None = None) -> None:
        self._report = report
        self._total = 0
        self._done = 0.0
        self._reported = monotonic()
        if total is not None:
            self.begin(total)

    def begin(self, total: int) -> None:
        """Report that the phase begins, with so many steps."""
        self._total = total
        self._done = 0.0
        self._report_now()

    def lengthen(self, steps: int) -> None:
        """Count more steps than were known of."""
        self._total += steps

    def advance(self, steps: float = 1) -> None:
        """Note steps as done."""
        self.reach(self._done + steps)

    def reach(self, done: float) -> None:
        """Note so many steps as done in all."""
        self._done = min(done, self._total)
        if monotonic() - self._reported >= INTERVAL:
            self._report_now()

    def finish(self) -> None:
        """Report all steps as done, if the phase has begun."""
        if self._total:
            self._done = self._total
            self._report_now()

    def _report_now(self) -> None:
        self._reported = monotonic()
        self._report(int(self._done), self._total)
