"""Quitting: what was not saved is asked about, and runs that go on without the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench.engine import background
from spbench.tui.dialogs import Confirm

if TYPE_CHECKING:
    from spbench.tui.app import ConsoleApp


def leave(app: ConsoleApp) -> None:
    """Quit at once, or ask where something would be lost or goes on."""
    reasons = [told for page in app.pages.values() if (told := page.unsaved())]
    if app.run_goes_on() or background.any_started():
        reasons.append(
            "A run goes on without the console; `spbench tui` offers to watch it again. "
            "(To end the run itself, cancel it on the Run page.)"
        )
    if not reasons:
        app.exit(0)
        return

    def answer(yes: bool | None) -> None:
        if yes:
            app.exit(0)

    app.push_screen(Confirm(" ".join([*reasons, "Quit?"]), "Quit", "Stay"), answer)
