"""Progress of a survey: a line every second, so that users do not wait in silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

Step = TypeVar("Step")
Progress = Callable[[str], None]
"""Shows a line on the progress of some work."""
INTERVAL = 1.0
"""Seconds between two lines."""
MANY = 64
"""The number of hosts above which the first line is shown immediately."""


class AnswerCounts:
    """The number of queried hosts, of those that have answered, and of unfit ones."""

    def __init__(self, total: int, activity: str = "asking hosts") -> None:
        self.total = total
        self._activity = activity
        self.answered = 0
        self.failed = 0
        self._started = time.monotonic()

    def count(self, *, succeeded: bool) -> None:
        """Count an answer, or that a host gives none."""
        self.answered += 1
        self.failed += not succeeded

    @property
    def line(self) -> str:
        """The progress so far."""
        seconds = time.monotonic() - self._started
        failed = f", {self.failed} of them not well" if self.failed else ""
        return f"{self._activity}: {self.answered} of {self.total} after {seconds:.0f} s{failed}"


def ignore_progress(_: str) -> None:
    """Show nothing."""


@asynccontextmanager
async def report_progress(
    total: int, progress: Progress, activity: str = "asking hosts"
) -> AsyncIterator[AnswerCounts]:
    """Show a line every second while hosts are queried, or during other work."""
    counts = AnswerCounts(total, activity)
    if total > MANY:
        progress(counts.line)
    task = asyncio.create_task(_show_lines(counts, progress))
    try:
        yield counts
    finally:
        task.cancel()


async def _show_lines(counts: AnswerCounts, progress: Progress) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        progress(counts.line)


def iterate_with_progress(
    steps: Collection[Step], activity: str, progress: Progress
) -> Iterator[Step]:
    """Yield the steps of some work, and show every second which of them is next."""
    last_line_s = time.monotonic()
    for number, step in enumerate(steps, 1):
        if time.monotonic() - last_line_s >= INTERVAL:
            last_line_s = time.monotonic()
            progress(f"{activity} {number} of {len(steps)}")
        yield step
