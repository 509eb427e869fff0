"""Panes of pages: a frame with a title, and a table with a filter."""

from __future__ import annotations

from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.line_table import LineTable
from spbench.tui.widgets.text import cell_width

READING = "reading ..."
"""The content of a pane until it is known."""
_TITLE_MARGIN = 6
"""Columns of the line of a title without its text: corners, lines, and spaces."""
_HINT_GAP = "  "


class Pane(Vertical):
    """A frame that can fill the page; on a small screen it has only a title."""

    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = "Pane.-maximized { height: 1fr; max-height: 100%; }"

    def __init__(self, title: str, *children: Widget, id: str) -> None:
        super().__init__(*children, id=id, classes="pane")
        self._title = ""
        self._is_zoomed = False
        self._remark = ""
        self._hint = ""
        self.set_title(title)

    @property
    def title(self) -> str:
        """The title without the note behind it."""
        return self._title

    def set_title(self, title: str) -> None:
        """Change the title."""
        if title != self._title:
            self._title = title
            self._draw_title()

    def set_zoomed(self, zoomed: bool) -> None:
        """Add the key that shows all panes again to the title, or remove it."""
        self._is_zoomed = zoomed
        self._draw_title()

    def set_hint(self, hint: str) -> None:
        """Change the note behind the title, which gives way to it in a narrow pane.

        Without space for all of it, it ends before its colon.
        """
        if hint != self._hint:
            self._hint = hint
            self._draw_title()

    def on_resize(self) -> None:
        """Show as much of the note behind the title as fits."""
        if self._hint:
            self._draw_title()

    def _draw_title(self) -> None:
        note = "z: all panes" if self._is_zoomed else self._hint
        width = self.outer_size.width - _TITLE_MARGIN - cell_width(self._title + _HINT_GAP)
        candidates = (note, note.partition(":")[0])
        if self.outer_size.width:  # it is 0 before the first layout
            note = next((text for text in candidates if cell_width(text) <= width), "")
        title = f"{self._title}{_HINT_GAP}{note}" if note else self._title
        if title != str(self.border_title or ""):
            self.border_title = Content(title)  # not parsed as markup

    def set_remark(self, remark: str) -> None:
        """Change the remark in the lower border."""
        if remark != self._remark:
            self._remark = remark
            self.border_subtitle = Content(remark)

    def set_framed(self, framed: bool) -> None:
        """Draw the border, or only its upper line with the title."""
        self.set_class(framed, "pane")
        self.set_class(not framed, "frameless")


def mark_zoomed(before: Widget | None, after: Widget | None) -> None:
    """Show in their titles that a pane fills the page, and another one no longer does."""
    for widget in (before, after):
        if isinstance(widget, Pane):
            widget.set_zoomed(widget is after)


def make_leave_filter_binding(page: str, rows: str) -> Binding:
    """Return the key binding that shows all rows of a pane again."""
    title = "No filter"
    tooltip = f"Show all {rows} again"
    return make_binding(f"{page}.no-filter", "escape", "leave_filter", title, tooltip, show=True)


class FilterPane(Vertical):
    """A pane with a `LineTable` and an `Input` that filters it.

    The input is visible while it has the focus or is not empty. A subclass composes both, binds
    `make_leave_filter_binding`, and may override `show_filtered`.
    """

    DEFAULT_CSS = """
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
        """Show the input of the filter and focus it."""
        filter_input = self.query_one(Input)
        filter_input.add_class("open")
        # Unlike `focus`, this takes effect at once, so that keys typed ahead go to the input.
        self.screen.set_focus(filter_input)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to leave the filter if it is open."""
        if action == "leave_filter":
            return self.is_mounted and self.query_one(Input).has_class("open")
        return super().check_action(action, parameters)

    def action_leave_filter(self) -> None:
        """Show all rows again and focus the table."""
        filter_input = self.query_one(Input)
        filter_input.clear()
        filter_input.remove_class("open")
        self.table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        event.stop()
        self.show_filtered(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Focus the table; hide the input if it is empty."""
        event.stop()
        event.input.set_class(bool(event.value.strip()), "open")
        self.table.focus()
