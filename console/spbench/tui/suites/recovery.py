"""Unsaved texts: kept beside the runs as they are typed, and offered after a crash or a kill."""

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
from spbench.record.runs.files import PRIVATE, parse_json
from spbench.record.runs.folder import process_start, write_file
from spbench.safe_files import make_folders

UNSAVED_FOLDER = "unsaved"
"""The folder of unsaved texts in a home."""


@dataclass(frozen=True, slots=True)
class UnsavedText:
    """A text that was typed and not saved.

    Attributes:
        path: The suite's file.
        text: The text.
        stored: The file's content when it was opened; None where there was none.
        edited: When it was typed, in seconds since the epoch.
        pid: The console's process.
        host: The host that it ran on.
    """

    path: str
    text: str
    stored: str | None
    edited: float
    pid: int
    host: str

    def is_abandoned(self) -> bool:
        """Whether no other console has it open: its process has ended, or is this one."""
        here = self.host == socket.gethostname()
        return here and (self.pid == os.getpid() or process_start(self.pid) is None)


@dataclass(frozen=True, slots=True)
class RecoveryFile:
    """The file that keeps the unsaved text of one suite in one console."""

    path: Path

    @classmethod
    def locate(cls, home: Path, suite: Path) -> RecoveryFile:
        """Return that of a suite that is open in this console."""
        name = hashlib.sha256(os.fsencode(suite.resolve())).hexdigest()[:16]
        return cls(home / UNSAVED_FOLDER / f"{name}-{os.getpid()}.json")

    def write(self, suite: Path, stored: str | None, text: str) -> None:
        """Keep a text.

        Raises:
            FailedRunError: It cannot be written.
        """
        about = (str(suite.resolve()), text, stored, time.time(), os.getpid(), socket.gethostname())
        with suppress(OSError):  # the write says why not
            make_folders(self.path.parent, PRIVATE)
        text = json.dumps(asdict(UnsavedText(*about)))
        write_file(self.path, text, mode=0o600, root=self.path.parent)

    def delete(self) -> None:
        """Remove it: the text was saved, or nobody wants it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def find_abandoned(home: Path) -> list[tuple[RecoveryFile, UnsavedText]]:
    """Return the texts of consoles that ended without saving them, the newest first."""
    found = []
    for path in (home / UNSAVED_FOLDER).glob("*.json"):
        text = _read(path)
        if text is not None and text.is_abandoned():
            found.append((RecoveryFile(path), text))
    return sorted(found, key=lambda pair: -pair[1].edited)


def _read(path: Path) -> UnsavedText | None:
    """Return an unsaved text; None where the file is damaged, gone or somebody else's.

    In another user's home it could offer to write any text into any file.
    """
    with suppress(OSError, ValueError, TypeError, UntrustedFileError):
        with open_trusted(path) as file:
            text = UnsavedText(**parse_json(file.read(), path))
        strings = (text.path, text.text, text.host, text.stored or "")
        numbers = (text.edited, text.pid)
        sound = all(isinstance(one, str) for one in strings)
        if sound and all(isinstance(one, int | float) for one in numbers):
            return text
    return None
