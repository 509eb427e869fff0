"""Progress while hosts are asked: a line now and then, so that nobody waits in silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Say = Callable[[str], None]
INTERVAL = 1.0
"""Seconds between two lines."""
MANY = 64
"""Hosts above which the first line comes at once."""


class Asked:
    """The hosts that are asked: how many, how many have answered, and how many of those are ill."""

    def __init__(self, total: int, doing: str = "asking hosts") -> None:
        self.total = total
        self._doing = doing
        self.answered = 0
        self.ill = 0
        self._started = time.monotonic()

    def count(self, *, well: bool) -> None:
        """Take in an answer, or that there is none."""
        self.answered += 1
        self.ill += not well

    @property
    def line(self) -> str:
        """The progress so far, in a line."""
        seconds = time.monotonic() - self._started
        ill = f", {self.ill} of them not well" if self.ill else ""
        return f"{self._doing}: {self.answered} of {self.total} after {seconds:.0f} s{ill}"


def nobody(_: str) -> None:
    """Say nothing."""


@asynccontextmanager
async def progress(total: int, say: Say, doing: str = "asking hosts") -> AsyncIterator[Asked]:
    """Say a line every second while hosts are asked, or something else is done with each."""
    asked = Asked(total, doing)
    if total > MANY:
        say(asked.line)
    task = asyncio.create_task(_tell(asked, say))
    try:
        yield asked
    finally:
        task.cancel()


async def _tell(asked: Asked, say: Say) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        say(asked.line)
