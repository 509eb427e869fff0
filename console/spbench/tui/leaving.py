"""Quitting: a run that goes on is asked about, for it need not end with the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench.tui.dialogs import Confirm

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp


def leave(app: ConsoleApp) -> None:
    """Quit at once, or ask where a watched run is still going on."""
    if not app.run_goes_on():
        app.exit(0)
        return

    def answer(yes: bool | None) -> None:
        if yes:
            app.exit(0)

    question = (
        "The run goes on without the console; `spbench tui` offers to watch it again. "
        "Quit? (To end the run itself, cancel it on the Run page.)"
    )
    app.push_screen(Confirm(question, "Quit", "Stay"), answer)
