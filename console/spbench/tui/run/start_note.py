"""The note on the Run page about a run that could not be started."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from spbench.tui.start_failure import StartFailure


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
