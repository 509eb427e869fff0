"""events.jsonl: append-only, the truth about a run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

from spbench.errors import FailedRunError, UsageError
from spbench.record.runs.files import file_mode, may_have_controls, strip_controls_from_json
from spbench.safe_files import open_to_append
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import LONG_JSON, SHORT_JSON

_BEYOND_FLOATS = re.compile(rb"\d{309}")
_BLOCK = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT)


class EventLog:
    """Appends lines, each batch in one write, so that a kill loses at most the last line.

    One console at a time has a log; a torn last line, of one that was killed, is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_to_append(path, file_mode(path.parent))
        except OSError as error:
            raise unwritable_error(path, error) from None
        try:
            self._own()
        except BaseException:
            os.close(self._file)
            raise
        self._stamp = _stamp(os.fstat(self._file))

    def _own(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self._path} is written by another spbench, which is still running"
            ) from None
        except OSError:
            pass  # a file system without locks
        try:
            if (whole := _whole(self._file)) < os.fstat(self._file).st_size:
                os.truncate(self._file, whole)
        except OSError as error:
            raise unwritable_error(self._path, error) from None

    def check_path(self) -> None:
        """Look whether the log is still where a reader would look for it.

        Raises:
            FailedRunError: It was removed, moved or replaced: what is appended would be lost.
        """
        try:
            there = _stamp(os.stat(self._path)) == self._stamp
        except OSError:
            there = False
        if not there:
            raise FailedRunError(
                f"{self._path} was removed while the run went on, and with it what was measured; "
                "start the run again"
            )

    def append(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            FailedRunError: They could not be written: the disk is full, say.
        """
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            raise unwritable_error(self._path, error) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _whole(file: int) -> int:
    """Return the bytes of a file up to the end of its last whole line."""
    end = os.fstat(file).st_size
    while end:
        begin = max(0, end - _BLOCK)
        block = os.pread(file, end - begin, begin)
        if newline := block.rfind(b"\n") + 1:
            return begin + newline
        end = begin
    return 0


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def unwritable_error(path: Path, error: OSError) -> FailedRunError:
    """Return the error for a file that cannot be written."""
    mend = "; free some space there or write elsewhere" if error.errno in _FULL else ""
    return FailedRunError(f"cannot write {path}: {error.strerror or error}{mend}")


def encode(event: Event) -> bytes:
    """Return a console event as one line."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(text: bytes) -> Any:
    """Return the event of a line, or a JSON array of events, with texts that can be printed.

    Returns None if the text is not JSON, or has a number that no float can hold.
    """
    decoder = LONG_JSON if _BEYOND_FLOATS.search(text) else SHORT_JSON
    try:
        value = decoder.decode(text.decode())
        return strip_controls_from_json(value) if may_have_controls(text) else value
    except (ValueError, RecursionError):
        return None
