"""Readers of an event log, also of one that is still being written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spbench.errors import UsageError
from spbench.record.runs.event_log import decode
from spbench.record.runs.files import open_file
from spbench.suites.case import MAX_REPEATS
from spbench_core.events import rank_events, run_events
from spbench_core.events.fields import Event, EventError

READ_SIZE = 256 << 10
"""The number of bytes that one call reads by default."""
MAX_LINE_BYTES = 256 << 20
"""The longest line. A run of many cases on ten thousand ranks begins with such a line."""
MAX_SKIPPED_BYTES = 1 << 30
"""The longest line that is skipped because it is too long. Logs with longer lines are rejected.

A sparse file may have any size without a byte on disk. Searching it for the end of a line takes
minutes.
"""
_TOO_LONG = b"?"
"""Replaces a line that is too long; it is not an event either."""


class EventTail:
    """A reader of a log from its beginning, and of events that are appended later.

    Lines that are not events of a run, such as a full disk or a kill may leave, are skipped and
    reported by `skipped_message`.

    Args:
        path: The log.
        max_line_bytes: The longest line that is not skipped.
    """

    def __init__(self, path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._offset = 0
        self._lines = 0
        self._incomplete = bytearray()
        self._incomplete_bytes = 0
        self._at_end = False
        self._check = LogCheck()
        self._invalid_lines = 0
        self._first_invalid = 0

    @property
    def at_end(self) -> bool:
        """Whether the last call read all complete lines."""
        return self._at_end

    @property
    def skipped_message(self) -> str | None:
        """A message on the skipped lines and the first location, or None."""
        if not self._invalid_lines:
            return None
        more = self._invalid_lines - 1
        location = f"{self._path}:{self._first_invalid}: this is no event of a run"
        if not more:
            return f"{location}; what it reported was left out"
        others = "is 1 further line" if more == 1 else f"are {more} further lines"
        return f"{location}, nor {others}; what they reported was left out"

    def read(self, limit: int = READ_SIZE) -> list[Event]:
        """Return the events in the next ``limit`` bytes.

        An incomplete last line is kept for later.

        The list is empty before the log exists, or if a line is longer than all bytes read.

        Raises:
            UsageError: The log cannot be read, or has a line that is far too long.
        """
        chunk = self._read_bytes(limit)
        self._at_end = len(chunk) < limit
        complete, newline, incomplete = chunk.rpartition(b"\n")
        if not newline:
            self._add_incomplete(chunk)
            return []
        lines = bytes(self._incomplete) + complete
        self._incomplete = bytearray()
        self._incomplete_bytes = 0
        self._add_incomplete(incomplete)
        return self._parse_lines(lines)

    def _add_incomplete(self, part: bytes) -> None:
        """Keep a part of a line, unless the line is too long."""
        self._incomplete_bytes += len(part)
        if self._incomplete_bytes <= self._max_line_bytes:
            self._incomplete += part
            return
        self._incomplete = bytearray(_TOO_LONG)
        if self._incomplete_bytes > MAX_SKIPPED_BYTES:
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

    def _parse_lines(self, lines: bytes) -> list[Event]:
        """Return the events of complete lines.

        They are parsed as one array, which is twice as fast as line by line, because their keys are
        the same.
        """
        num_lines = lines.count(b"\n") + 1
        events = decode(b"[%b]" % lines.replace(b"\n", b","))
        if type(events) is not list or len(events) != num_lines:
            events = [decode(line) for line in lines.split(b"\n")]
        first_line = self._lines + 1
        self._lines += num_lines
        return [
            event for line, event in enumerate(events, first_line) if self._is_event(event, line)
        ]

    def _is_event(self, event: Any, line: int) -> bool:
        if self._check.accepts(event):
            return True
        self._invalid_lines += 1
        self._first_invalid = self._first_invalid or line
        return False


class RecordedEvents(Iterator[Event]):
    """The events that a log has now, one by one, without an incomplete last line.

    ``next`` raises a UsageError if the log cannot be read.
    """

    def __init__(self, path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._tail = EventTail(path, max_line_bytes=max_line_bytes)
        self._events = self._read()

    @property
    def skipped_message(self) -> str | None:
        """A message on the lines that were skipped so far; None without any."""
        return self._tail.skipped_message

    def __next__(self) -> Event:
        return next(self._events)

    def _read(self) -> Iterator[Event]:
        while not self._tail.at_end:
            yield from self._tail.read()


class LogCheck:
    """The check of a log's events, each against the events before it.

    An accepted event can be applied to a state: its fields have the right types, and its cases and
    jobs are known.
    """

    def __init__(self) -> None:
        self._repeats: dict[str, int] = {}
        self._jobs: set[int] = set()
        self._has_begun = False

    def accepts(self, event: Any) -> bool:
        """Whether this can be the next event of a run.

        Unknown kinds of events are accepted.
        """
        if type(event) is not dict or type(event.get("event")) is not str:
            return False
        if type(event.get("time")) not in (int, float):
            return False
        if type(event.get("rank")) not in (int, type(None)):  # `RankRows` reads it of every event
            return False
        kind = event["event"]
        try:
            if kind in rank_events.EVENT_KINDS:
                return self._accepts_rank_event(event)
            return kind not in run_events.FIELDS or self._accepts_run_event(event)
        except EventError:
            return False

    def _accepts_rank_event(self, event: dict[str, Any]) -> bool:
        rank_events.check_rank_event(event)
        rank = event["rank"]
        job = event.get("job")
        if type(job) is not int or job not in self._jobs or (rank is not None and rank < 0):
            return False
        if event["event"] not in rank_events.CASE_EVENTS:
            return True
        repeat: int = event.get("repeat", 0)
        return 0 <= repeat < self._repeats.get(event["case"], 0)

    def _accepts_run_event(self, event: dict[str, Any]) -> bool:
        run_events.check_run_event(event)
        kind = event["event"]
        if kind == "run_start":
            return self._accepts_start(event)
        if kind in ("job_start", "run_resumed", "retry"):
            are_known = self._repeats.keys() >= set(event["cases"])
            if are_known and kind == "job_start":
                self._jobs.add(event["job"])
            return are_known
        if kind in ("case_begin", "case_judged", "repeats_end"):
            return event["case"] in self._repeats
        return kind == "run_end" or event["job"] in self._jobs

    def _accepts_start(self, event: dict[str, Any]) -> bool:
        if self._has_begun:
            return False
        self._has_begun = True
        self._repeats = {case["id"]: _count_max_repeats(case) for case in event["cases"]}
        return True


def _count_max_repeats(case: Mapping[str, Any]) -> int:
    repeat: int = case["repeat"]
    return max(repeat, MAX_REPEATS) if "until" in case else repeat
