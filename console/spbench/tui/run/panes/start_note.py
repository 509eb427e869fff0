"""The texts of the Run page without a run: help, progress and failure of a start."""

from __future__ import annotations

import time

from textual.content import Content
from textual.widgets import Static

from spbench.tui.context import ConsoleContext
from spbench.tui.start_failure import StartFailure

NO_RUN = """\
No run is watched.

1  compose a suite and run it
3  look at a recorded run, or play it again

A run that is started in a shell is found too: spbench run SUITE there, then open the console.
spbench tui --demo plays a recorded run and needs no MPI."""
NOT_STARTED = """\
No run is watched, since the last one could not be started.

F5  start it again, with the hosts and the launcher that are chosen now
1   change the suite or its cases
3   look at an earlier run"""


class NoRunText(Static):
    """The text in the middle of the page while no run is shown."""

    DEFAULT_CSS = """
    NoRunText { width: 100%; height: 1fr; content-align: center middle; }
    """

    def __init__(self) -> None:
        super().__init__(NO_RUN, id="no-run", markup=False)
        self._shown = NO_RUN

    def show(self, context: ConsoleContext) -> None:
        """Show how to start or watch a run, or the progress of a start."""
        text = NO_RUN if context.start_failure is None else NOT_STARTED
        running = context.unwatched_run
        if running is not None:
            text = f"{running.id} is running: Enter watches it.\n\n{text}"
        if context.starting_since is not None:
            text = f"… starting a run\n\n{describe_preparation(context.starting_since)}"
        if text != self._shown:  # this is called with each update of the page
            self._shown = text
            self.update(text, layout=False)


def describe_preparation(started_at: float) -> str:
    """Return the progress of a run without a folder: the seconds so far, and a key."""
    seconds = time.monotonic() - started_at
    return f"spbench reads the suite and asks the hosts for their cores, {seconds:.0f} s; x cancels"


class StartNote(Static):
    """Request, reason and remedy of the last start; hidden unless it failed."""

    DEFAULT_CSS = """
    StartNote { display: none; height: auto; max-height: 8; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__(id="start-note")
        self._shown: StartFailure | None = None

    def show(self, failure: StartFailure | None) -> None:
        """Show a failed start, or hide the note."""
        if failure == self._shown:
            return
        self._shown = failure
        self.display = failure is not None
        if failure is not None:
            self.update(
                Content.assemble(
                    (f"✗ not started: {failure.request}", "bold $text-error"),
                    f"\n{failure.reason}\n",
                    (f"→ {failure.remedy}", "italic"),
                )
            )
