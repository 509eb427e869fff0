"""Progress of a phase that takes long, told ten times a second at most."""

from __future__ import annotations

from time import monotonic

from spbench_core.events.rank_events import BATCH_INTERVAL
from spbench_workers.context import Context


class Progress:
    """The progress of a phase, as this rank knows it.

    Args:
        context: The case.
        phase: The phase.
        total: The number of its parts, each about as long as the others.
    """

    def __init__(self, context: Context, phase: str, total: int) -> None:
        self._context, self._phase, self._total = context, phase, total
        self._done, self._told = 0, monotonic()
        context.progress(phase, 0, total)

    def lengthen(self, parts: int) -> None:
        """Count more parts than were known of."""
        self._total += parts

    def advance(self) -> None:
        """Note a part as done."""
        self.reach(self._done + 1)

    def reach(self, done: int) -> None:
        """Note so many parts as done."""
        self._done = min(done, self._total)
        if monotonic() - self._told >= BATCH_INTERVAL:
            self._tell()

    def finish(self) -> None:
        """Note all as done."""
        self._done = self._total
        self._tell()

    def _tell(self) -> None:
        self._told = monotonic()
        self._context.progress(self._phase, self._done, self._total)
