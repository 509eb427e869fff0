"""A reader of an event log that is still written: the events since the last read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spbench.errors import UsageError
from spbench.record.runs.event_log import decode
from spbench.record.runs.files import open_file
from spbench.record.runs.log_check import LogCheck
from spbench_core.events.fields import Event

READ_SIZE = 256 << 10
"""Bytes of a log that one look takes in, unless it is told otherwise."""
MAX_LINE_BYTES = 256 << 20
"""Bytes of the longest line of a log: a run of many cases on ten thousand ranks begins with it."""
MAX_SKIPPED_BYTES = 1 << 30
"""Bytes of a line that is left out since it is too long; a log with a longer one is rejected.

A file may have any size without a byte on disk: to look for the end of a line in it takes minutes.
"""
_TOO_LONG = b"?"
"""What is kept of a line that is too long: no event either."""


class EventTail:
    """A reader of a log from its beginning on, and of what is appended afterwards.

    A line that is no event of a run, as a full disk or a kill may leave one, is left out: it is
    counted, and `left_out` says so.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines = 0
        self._rest = bytearray()
        self._rest_bytes = 0
        self._at_end = False
        self._check = LogCheck()
        self._wrong = 0
        self._first_wrong = 0

    @property
    def at_end(self) -> bool:
        """Whether the last look took in all that was there, but for a line that was not whole."""
        return self._at_end

    @property
    def skipped(self) -> str | None:
        """The sentence on the lines that were left out, with the place of the first."""
        if not self._wrong:
            return None
        more = self._wrong - 1
        where = f"{self._path}:{self._first_wrong}: this is no event of a run"
        if not more:
            return f"{where}; what it reported was left out"
        others = "is 1 further line" if more == 1 else f"are {more} further lines"
        return f"{where}, nor {others}; what they reported was left out"

    def read(self, limit: int = READ_SIZE) -> list[Event]:
        """Return the events of the next ``limit`` bytes; a torn last line waits for its rest.

        There are none where the file is not there yet, or where a line is longer than what was
        read of it so far.

        Raises:
            UsageError: The log cannot be read, or a line of it is far too long.
        """
        chunk = self._read_bytes(limit)
        self._at_end = len(chunk) < limit
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._keep(chunk)
            return []
        lines = bytes(self._rest) + whole
        self._rest = bytearray()
        self._rest_bytes = 0
        self._keep(rest)
        return self._events(lines)

    def _keep(self, part: bytes) -> None:
        """Keep a part of a line, unless the line is too long."""
        self._rest_bytes += len(part)
        if self._rest_bytes <= MAX_LINE_BYTES:
            self._rest += part
            return
        self._rest = bytearray(_TOO_LONG)
        if self._rest_bytes > MAX_SKIPPED_BYTES:
            size = os.stat(self._path).st_size
            raise UsageError(
                f"cannot read {self._path}: it has {size / 10**9:.1f} GB, "
                f"and a line of more than {MAX_SKIPPED_BYTES >> 20} MiB"
            )

    def _read_bytes(self, limit: int) -> bytes:
        try:
            file = open_file(self._path)
            try:
                chunk = os.pread(file, limit, self._offset)
            finally:
                os.close(file)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror or error}") from None
        self._offset += len(chunk)
        return chunk

    def _events(self, lines: bytes) -> list[Event]:
        """Return the events of whole lines.

        They are read as one array: twice as fast as line by line, for they have the same keys.
        """
        count = lines.count(b"\n") + 1
        events = decode(b"[%b]" % lines.replace(b"\n", b","))
        if type(events) is not list or len(events) != count:
            events = [decode(line) for line in lines.split(b"\n")]
        first, self._lines = self._lines + 1, self._lines + count
        return [
            event for number, event in enumerate(events, first) if self._is_event(event, number)
        ]

    def _is_event(self, event: Any, line: int) -> bool:
        if self._check.accepts(event):
            return True
        self._wrong += 1
        self._first_wrong = self._first_wrong or line
        return False


class RecordedEvents(Iterator[Event]):
    """The events that a log has now, one by one, a torn last line left out.

    ``next`` raises a UsageError where the log cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._tail = EventTail(path)
        self._events = self._read()

    @property
    def skipped(self) -> str | None:
        """The sentence on the lines that were left out so far."""
        return self._tail.skipped

    def __next__(self) -> Event:
        return next(self._events)

    def _read(self) -> Iterator[Event]:
        while not self._tail.at_end:
            yield from self._tail.read()
