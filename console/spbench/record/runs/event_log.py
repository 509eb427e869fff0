"""events.jsonl: the append-only log of events, a run's source of record."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

from spbench.errors import FailedRunError, UsageError
from spbench.record.runs.files import (
    file_mode,
    may_have_controls,
    replace_controls_in_json,
    unwritable_error,
)
from spbench.safe_files import open_to_append
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import LONG_JSON, SHORT_JSON

_BEYOND_FLOATS = re.compile(rb"\d{309}")
_BLOCK = 1 << 16


class EventLog:
    """An event log opened for appending.

    Each batch is one write, so that a kill loses at most the last line. Only one console at a time
    has the log open. An incomplete last line of a killed console is removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_to_append(path, file_mode(path.parent))
        except OSError as error:
            raise unwritable_error(path, error) from None
        try:
            self._lock_and_repair()
        except BaseException:
            os.close(self._file)
            raise
        self._file_identity = _identify_file(os.fstat(self._file))

    def _lock_and_repair(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self._path} is written by another spbench, which is still running"
            ) from None
        except OSError:
            pass  # a file system without locks
        try:
            if (complete_bytes := _count_complete_bytes(self._file)) < os.fstat(self._file).st_size:
                os.truncate(self._file, complete_bytes)
        except OSError as error:
            raise unwritable_error(self._path, error) from None

    def check_path(self) -> None:
        """Check that the log's path still leads to the open file.

        Raises:
            FailedRunError: It was removed, moved or replaced: appended events would be lost.
        """
        try:
            is_same = _identify_file(os.stat(self._path)) == self._file_identity
        except OSError:
            is_same = False
        if not is_same:
            raise FailedRunError(
                f"{self._path} was removed while the run went on, and with it what was measured; "
                "start the run again"
            )

    def append(self, lines: bytes) -> None:
        """Append complete lines.

        Raises:
            FailedRunError: They cannot be written, for example because the disk is full.
        """
        remaining = memoryview(lines)
        try:
            while remaining:
                remaining = remaining[os.write(self._file, remaining) :]
        except OSError as error:
            raise unwritable_error(self._path, error) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _count_complete_bytes(file: int) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    end = os.fstat(file).st_size
    while end:
        begin = max(0, end - _BLOCK)
        block = os.pread(file, end - begin, begin)
        if newline := block.rfind(b"\n") + 1:
            return begin + newline
        end = begin
    return 0


def _identify_file(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def encode(event: Event) -> bytes:
    """Return an event of the console as one line."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(text: bytes) -> Any:
    """Return the event or events of a JSON text, without control characters.

    Returns None if the text is not JSON or has a number that no float can hold.
    """
    decoder = LONG_JSON if _BEYOND_FLOATS.search(text) else SHORT_JSON
    try:
        value = decoder.decode(text.decode())
        return replace_controls_in_json(value) if may_have_controls(text) else value
    except (ValueError, RecursionError):
        return None
