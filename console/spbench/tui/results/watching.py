"""Shows runs on the Run page: one that goes on is followed, one that has ended played again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spbench.record.runs.history import RUNNING, RunSummary
from spbench.tui.opening import open_recorded

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp


def attach(app: ConsoleApp, runs: Sequence[RunSummary], run: RunSummary | None) -> None:
    """Follow a run of these if it goes on, else the first of them that does."""
    going = [other for other in runs if other.verdict == RUNNING]
    if going:
        app.watch_run((run if run in going else going[0]).folder)
    else:
        app.notify("no run is going on", severity="warning")


def replay(app: ConsoleApp, run: RunSummary) -> None:
    """Play a run again, as fast as it was."""
    if run.verdict == RUNNING:
        app.notify("this run still goes on; o shows it", severity="warning")
    else:
        open_recorded(app, run.folder, 1.0)
