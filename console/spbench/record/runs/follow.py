"""A reader of an event log that is still written: the events since the last read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spbench.errors import UsageError
from spbench.record.state import Event

READ_SIZE = 256 << 10
"""Bytes of a log that one look takes in, unless it is told otherwise."""


class EventTail:
    """A reader of a log from its beginning on, and of what is appended afterwards."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines = 0
        self._rest = b""
        self._at_end = False
        self._wrong: UsageError | None = None

    @property
    def at_end(self) -> bool:
        """Whether the last look took in all that was there, but for a line that was not whole."""
        return self._at_end

    def read(self, limit: int = READ_SIZE) -> list[Event]:
        """Return the events of the next ``limit`` bytes; a torn last line waits for its rest.

        There are none where the file is not there yet, or where a line is longer than what was
        read of it so far.

        Raises:
            UsageError: The log cannot be read, or a line of it is no event; the events before it
                were returned.
        """
        self._refuse_wrong()
        chunk = self._read_bytes(limit)
        self._at_end = len(chunk) < limit
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._rest += chunk
            return []
        whole, self._rest = self._rest + whole, rest
        events = _events(whole)
        if events is None:
            events = self._before_wrong(whole)
        self._lines += len(events)
        if not events:
            self._refuse_wrong()
        return events

    def _refuse_wrong(self) -> None:
        if self._wrong is not None:
            raise self._wrong

    def _read_bytes(self, limit: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                chunk = os.pread(file.fileno(), limit, self._offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"cannot read {self._path}: {why}") from None
        self._offset += len(chunk)
        return chunk

    def _before_wrong(self, lines: bytes) -> list[Event]:
        """Return the events before the first line that is none; the next look refuses it."""
        events: list[Event] = []
        for line in lines.split(b"\n"):
            event = _events(line)
            if event is None:
                break
            events += event
        where = f"{self._path}:{self._lines + len(events) + 1}"
        self._wrong = UsageError(f"{where}: error: this is no event of a run")
        self._at_end = False
        return events


def recorded_events(path: Path) -> Iterator[Event]:
    """Yield the events that a log has now, a torn last line left out.

    Raises:
        UsageError: The log cannot be read, or a line of it is no event.
    """
    tail = EventTail(path)
    while not tail.at_end:
        yield from tail.read()


def _events(lines: bytes) -> list[Event] | None:
    """Return the events of whole lines; None where one of them is none.

    They are read as one array: twice as fast as line by line, for they have the same keys.
    """
    try:
        events = json.loads(b"[%b]" % lines.replace(b"\n", b","))
    except (ValueError, RecursionError):
        return None
    whole = len(events) == lines.count(b"\n") + 1 and all(map(_is_event, events))
    return events if whole else None


def _is_event(event: Any) -> bool:
    if type(event) is not dict or type(event.get("event")) is not str:
        return False
    return type(event.get("time")) in (int, float)
