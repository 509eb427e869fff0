"""The events that ranks wrote to files, each line checked, merged in the order of their times."""

from __future__ import annotations

import errno
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spbench.engine.connections.rank_connection import Who
from spbench_core.events.batch_files import whole_lines
from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import decode


class RankFile:
    """The file of one rank, in place of a connection.

    Args:
        path: The file, whose name begins with the rank's host.

    Attributes:
        last: When its last event was said.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.who = Who(path.name.rsplit("-", 2)[0], 0, None)
        self.rank: int | None = None
        self.ended = False
        self.last = 0.0

    def reply(self, **fields: Any) -> None:
        """Answer nothing: nobody waits."""


@dataclass(frozen=True, slots=True, order=True)
class FileEvent:
    """One event of a file, or in its place what is wrong there; the order is that of times."""

    time: float
    source: RankFile = field(compare=False)
    line: bytes = field(default=b"", compare=False)
    event: Event | None = field(default=None, compare=False)
    wrong: str = field(default="", compare=False)


def merged(sources: Sequence[RankFile]) -> Iterator[FileEvent]:
    """Yield the events of all files in the order of their times; each file's own order is kept."""
    return heapq.merge(*map(_events, sources))


def _events(source: RankFile) -> Iterator[FileEvent]:
    """Yield a file's events up to the first line that is wrong, as the collector takes them."""
    at = 0.0
    try:
        for due, line in enumerate(whole_lines(source.path)):
            event = _checked(source, line, due)
            # a clock that is set back must not put a line before an earlier one
            at = max(at, float(event["time"]))
            yield FileEvent(at, source, line, event)
    except EventError as error:
        yield FileEvent(at, source, wrong=str(error))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # no fault of the rank's
            raise
        yield FileEvent(at, source, wrong=f"left a file that cannot be read: {error.strerror}")


def _checked(source: RankFile, line: bytes, due: int) -> Event:
    try:
        event = decode(line)
    except EventError as error:
        raise EventError(f"wrote a line {due + 1} that is no event: {error}") from None
    if event["seq"] != due:
        raise EventError(f"wrote event {event['seq']} where {due} was due")
    if (event["event"] == "hello") != (due == 0):
        raise EventError("did not begin with hello" if due == 0 else "said hello twice")
    if due == 0:
        source.who = Who(event["host"], event["pid"], event.get("rank"))
    return event
