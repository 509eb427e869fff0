"""Whether the open suite file was changed or deleted by another program."""

from __future__ import annotations

from enum import Enum

from spbench.record.runs.folder import NO_FILE, FileStamp, file_stamp
from spbench.tui.suites.document import SuiteDocument

CHECK_INTERVAL = 1.0
"""Time between two checks of the open file, in seconds."""


class DiskState(Enum):
    """The state of the open file since it was last read or written."""

    CURRENT = "current"
    CHANGED = "changed on disk"
    DELETED = "deleted on disk"


CHANGED_SIGN = "▲"
NOTE_BY_DISK_STATE = {
    DiskState.CURRENT: "",
    DiskState.CHANGED: f"  {CHANGED_SIGN} changed on disk (Ctrl+R)",
    DiskState.DELETED: f"  {CHANGED_SIGN} deleted on disk",
}
"""The note in the title of the text."""


class DiskWatch:
    """Compares a document with its file; the file is read only if its stamp differs."""

    def __init__(self, document: SuiteDocument) -> None:
        self.document = document
        self.state = DiskState.CURRENT
        self._stamp: FileStamp | None = None

    def check(self) -> DiskState:
        """Return the state of the file."""
        stamp = file_stamp(self.document.path)
        if stamp != self._stamp:
            self.state = self._compare(stamp)
            self._stamp = stamp
        return self.state

    def _compare(self, stamp: FileStamp) -> DiskState:
        if not self.document.is_stale():
            return DiskState.CURRENT
        return DiskState.DELETED if stamp == NO_FILE else DiskState.CHANGED
