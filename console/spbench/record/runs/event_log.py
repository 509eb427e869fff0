"""events.jsonl: append-only, the truth about a run."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spbench.errors import FailedRunError

_FULL = (errno.ENOSPC, errno.EDQUOT)


class EventLog:
    """Appends lines, each batch in one write, so that a kill loses at most the last line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise unwritable(path, error) from None

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
            raise unwritable(self._path, error) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def unwritable(path: Path, error: OSError) -> FailedRunError:
    """Return the error for a file that cannot be written."""
    mend = "; free some space there or write elsewhere" if error.errno in _FULL else ""
    return FailedRunError(f"cannot write {path}: {error.strerror or error}{mend}")


def encode(event: Mapping[str, Any]) -> bytes:
    """Return a console event as one line."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
