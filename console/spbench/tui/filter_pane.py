"""A table with a filter above it, which is shown while it is written and while it has words."""

from __future__ import annotations

from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from spbench.tui.widgets.keys import key
from spbench.tui.widgets.line_table import LineTable


def leave_filter_key(page: str, rows: str) -> Binding:
    """Return the key that shows all rows of a page's pane again."""
    title = "No filter"
    tooltip = f"Show all {rows} again"
    return key(f"{page}.no-filter", "escape", "leave_filter", title, tooltip, show=True)


class FilterPane(Vertical):
    """A pane with a `LineTable` and an `Input` that filters it.

    A subclass composes both, binds `leave_filter_key`, and may do more with what is written in
    `show_filtered`.
    """

    DEFAULT_CSS = """
    FilterPane { border-subtitle-color: $text-muted; }
    FilterPane Input { display: none; }
    FilterPane Input.open { display: block; }
    """

    def __init__(self, title: str) -> None:
        super().__init__(classes="pane")
        self.border_title = title

    @property
    def table(self) -> LineTable:
        """The table."""
        return self.query_one(LineTable)

    def show_filtered(self, text: str) -> None:
        """Show the rows that have all words of the filter."""
        self.table.filter = text

    def open_filter(self) -> None:
        """Let the reader write a filter."""
        line = self.query_one(Input)
        line.add_class("open")
        # Not `focus`, which waits: keys that came with this one are for the line already.
        self.screen.set_focus(line)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to leave the filter where there is one."""
        if action == "leave_filter":
            return self.is_mounted and self.query_one(Input).has_class("open")
        return super().check_action(action, parameters)

    def action_leave_filter(self) -> None:
        """Show all rows again, and go back to them."""
        line = self.query_one(Input)
        line.clear()
        line.remove_class("open")
        self.table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Select as the filter is written."""
        event.stop()
        self.show_filtered(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go back to the rows; an empty filter goes away."""
        event.stop()
        event.input.set_class(bool(event.value.strip()), "open")
        self.table.focus()
