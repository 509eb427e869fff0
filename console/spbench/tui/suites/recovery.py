"""Recovery files of unsaved texts, which are offered after a crash or a kill."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from spbench.config_files import UntrustedFileError, open_trusted
from spbench.record.runs.files import PRIVATE, parse_json, write_file
from spbench.record.runs.folder import find_process_start
from spbench.safe_files import make_folders

UNSAVED_FOLDER = "unsaved"
"""The folder of unsaved texts in a home."""


@dataclass(frozen=True, slots=True)
class UnsavedText:
    """An unsaved text of a suite.

    Attributes:
        path: The file of the suite.
        text: The text.
        stored: The content of the file when it was opened; None if there was no file.
        edited: The time of the last change, in seconds since the epoch.
        pid: The process id of the console.
        host: The host of the console.
    """

    path: str
    text: str
    stored: str | None
    edited: float
    pid: int
    host: str

    def is_abandoned(self) -> bool:
        """Return whether the console was on this host and has ended, or is this console.

        A console on another host cannot be checked.
        """
        is_local = self.host == socket.gethostname()
        return is_local and (self.pid == os.getpid() or find_process_start(self.pid) is None)


@dataclass(frozen=True, slots=True)
class RecoveryFile:
    """The recovery file of one suite in one console."""

    path: Path

    @classmethod
    def locate(cls, home: Path, suite: Path) -> RecoveryFile:
        """Return the recovery file of a suite for this console."""
        name = hashlib.sha256(os.fsencode(suite.resolve())).hexdigest()[:16]
        return cls(home / UNSAVED_FOLDER / f"{name}-{os.getpid()}.json")

    def write(self, suite: Path, stored: str | None, text: str) -> None:
        """Write an unsaved text.

        Raises:
            FailedRunError: The file cannot be written.
        """
        unsaved = UnsavedText(
            path=str(suite.resolve()),
            text=text,
            stored=stored,
            edited=time.time(),
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        with suppress(OSError):  # the following write reports the reason
            make_folders(self.path.parent, PRIVATE)
        content = json.dumps(asdict(unsaved))
        write_file(self.path, content, mode=0o600, root=self.path.parent)

    def delete(self) -> None:
        """Delete the file, because the text was saved or discarded."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def find_abandoned(home: Path) -> list[tuple[RecoveryFile, UnsavedText]]:
    """Return the unsaved texts of consoles that have ended, the newest first."""
    abandoned = []
    for path in (home / UNSAVED_FOLDER).glob("*.json"):
        unsaved = _read(path)
        if unsaved is not None and unsaved.is_abandoned():
            abandoned.append((RecoveryFile(path), unsaved))
    return sorted(abandoned, key=lambda pair: -pair[1].edited)


def _read(path: Path) -> UnsavedText | None:
    """Return an unsaved text; None if the file is damaged, missing or of another user.

    A file of another user could offer to write any text into any file.
    """
    with suppress(OSError, ValueError, TypeError, UntrustedFileError):
        with open_trusted(path) as file:
            unsaved = UnsavedText(**parse_json(file.read(), path))
        strings = (unsaved.path, unsaved.text, unsaved.host, unsaved.stored or "")
        numbers = (unsaved.edited, unsaved.pid)
        if all(isinstance(field, str) for field in strings) and all(
            isinstance(field, int | float) for field in numbers
        ):
            return unsaved
    return None
