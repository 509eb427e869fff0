"""A switch between the two modes of planning."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from spbench.planner.plans import Mode


class ModeSwitch(Static, can_focus=True):
    """Shows both modes, and which is chosen."""

    HELP: ClassVar[str] = """\
best looks for the least step time within the devices' memory; hpgo gives the plan of DAPPLE's
planner, with its estimate. Space, ← and → change it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "space,left,right",
            "turn",
            "Other mode",
            show=False,
            id="plan.other-mode",
            tooltip="The other of the two modes",
        )
    ]
    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = """
    ModeSwitch { width: auto; height: 1; }
    ModeSwitch:focus { background: $primary 25%; }
    """
    mode: reactive[Mode] = reactive[Mode]("best")

    def render(self) -> Content:
        """Return both, each behind a sign."""
        shown = (
            Content.styled(f"● {mode}", "bold") if mode == self.mode else Content(f"○ {mode}")
            for mode in ("best", "hpgo")
        )
        return Content("  ").join(shown)

    def on_click(self) -> None:
        """Change it."""
        self.action_turn()

    def action_turn(self) -> None:
        """Choose the other mode."""
        self.mode = "hpgo" if self.mode == "best" else "best"
