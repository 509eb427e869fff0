"""A request to cancel a run, left in its folder before SIGINT is sent."""

from __future__ import annotations

from contextlib import suppress

from spbench.errors import SpbenchError
from spbench.record.runs.folder import RunFolder

FILE = "cancel.json"
CONSOLE = "in the console"


def request_cancel(folder: RunFolder) -> None:
    """Record that a run is cancelled in the console, before the interrupt."""
    with suppress(SpbenchError):  # the run is cancelled even if this fails
        folder.write_json(FILE, {"cancelled": CONSOLE})


def read_cancel_origin(folder: RunFolder) -> str | None:
    """Return where a run was cancelled; None without a request."""
    origin = folder.read_json(FILE).get("cancelled")
    return origin if isinstance(origin, str) else None


def forget_cancel(folder: RunFolder) -> None:
    """Remove the request, because the run continues."""
    with suppress(OSError):
        (folder.path / FILE).unlink(missing_ok=True)
