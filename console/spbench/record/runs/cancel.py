"""The word that is left in a run's folder by who cancels it from another process."""

from __future__ import annotations

from contextlib import suppress

from spbench.errors import SpbenchError
from spbench.record.runs.folder import RunFolder

FILE = "cancel.json"
CONSOLE = "in the console"


def request_cancel(folder: RunFolder) -> None:
    """Say that the console cancels a run, just before it sends the interrupt."""
    with suppress(SpbenchError):  # it is cancelled all the same
        folder.write_json(FILE, {"cancelled": CONSOLE})


def read_cancel_origin(folder: RunFolder) -> str | None:
    """Return where a run was cancelled; None where nobody left word."""
    told = folder.read_json(FILE).get("cancelled")
    return told if isinstance(told, str) else None


def forget_cancel(folder: RunFolder) -> None:
    """Forget the word: the run goes on."""
    with suppress(OSError):
        (folder.path / FILE).unlink(missing_ok=True)
