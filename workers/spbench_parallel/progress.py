"""Progress of long tasks: without it, a computing rank would count as hung."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

INTERVAL = 0.1
"""Seconds between two reports."""


class Progress(Protocol):
    """The progress of a task, called by the function that does the task."""

    def begin(self, total: int) -> None:
        """Set the number of steps, which take about the same time."""

    def advance(self, steps: float = 1) -> None:
        """Count completed steps."""


class _NoProgress:
    def begin(self, total: int) -> None:
        """Ignore the number of steps."""

    def advance(self, steps: float = 1) -> None:
        """Ignore the steps."""


NO_PROGRESS: Progress = _NoProgress()
"""Ignores the progress of a task."""


class PhaseProgress:
    """The progress of a phase of a case, reported at most ten times per second.

    Args:
        report: Reports the completed and the total steps, such as
            ``partial(context.progress, "check")``.
        total: The number of steps, if it is already known.
    """

    def __init__(self, report: Callable[[int, int], None], total: int | None = None) -> None:
        self._report = report
        self._total = 0
        self._done = 0.0
        self._reported = monotonic()
        if total is not None:
            self.begin(total)

    def begin(self, total: int) -> None:
        """Report that the phase begins, with its number of steps."""
        self._total = total
        self._done = 0.0
        self._report_now()

    def lengthen(self, steps: int) -> None:
        """Add steps to the total."""
        self._total += steps

    def advance(self, steps: float = 1) -> None:
        """Count completed steps."""
        self.reach(self._done + steps)

    def reach(self, completed: float) -> None:
        """Set the number of completed steps."""
        self._done = min(completed, self._total)
        if monotonic() - self._reported >= INTERVAL:
            self._report_now()

    def finish(self) -> None:
        """Report all steps as completed, if the phase has begun."""
        if self._total:
            self._done = self._total
            self._report_now()

    def _report_now(self) -> None:
        self._reported = monotonic()
        self._report(int(self._done), self._total)
