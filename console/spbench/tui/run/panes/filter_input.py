"""The input of the filter of the ranks."""

from __future__ import annotations

from textual.widgets import Input


class FilterInput(Input):
    """An input without a border."""

    HELP = "Words that a rank's row must have: `node03`, `slow`, `failed`, `tile 0,1`. Enter keeps."

    def on_mount(self) -> None:
        # A rule in DEFAULT_CSS would lose against the rule for all inputs in console.tcss.
        self.styles.border = ("none", "transparent")
