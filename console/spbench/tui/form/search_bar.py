"""The search of the form's fields, and the number of fields found."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from spbench.tui.form.row_list import RowFilter
from spbench_core.number_text import format_quantity


class SearchBar(Horizontal):
    """A search box and the number of fields found, hidden by default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next", show=False, id="form.first"),
    ]
    DEFAULT_CSS = """
    SearchBar { height: 1; display: none; }
    SearchBar.open { display: block; }
    SearchBar Input { width: 32; }
    SearchBar Static { width: 1fr; padding-left: 1; color: $text-muted; }
    """

    class FilterChanged(Message):
        """Other rows are chosen."""

        def __init__(self, row_filter: RowFilter) -> None:
            super().__init__()
            self.row_filter = row_filter

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._set_only = False

    def compose(self) -> ComposeResult:
        yield Input(placeholder="words of name or help", compact=True)
        yield Static("", markup=False)

    @property
    def is_open(self) -> bool:
        """Whether the line is shown."""
        return self.has_class("open")

    @property
    def _input(self) -> Input:
        return self.query_one(Input)

    def open(self) -> None:
        """Show the line, and ask for words."""
        self.add_class("open")
        # Unlike `focus`, this takes effect at once, so that keys typed ahead go to the input.
        self.screen.set_focus(self._input)
        self._post_filter()

    def toggle_set_only(self) -> None:
        """Show only the fields that have a value set, or again all that match."""
        self._set_only = not self._set_only
        self.set_class(self._set_only or bool(self._input.value), "open")
        self._post_filter()

    def close(self) -> None:
        """Hide the line, and show all fields."""
        self._set_only = False
        self._input.value = ""
        self.remove_class("open")
        self._post_filter()

    def show_count(self, count: int, total: int) -> None:
        """Show the number of fields that are found."""
        kind = "set field" if self._set_only else "field"
        result = f"{format_quantity(count, kind)} of {total}" if count else f"no {kind} found"
        self.query_one(Static).update(f"{result} (Esc shows all)")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search for the words."""
        event.stop()
        self._post_filter()

    def _post_filter(self) -> None:
        row_filter = RowFilter(self._input.value, self._set_only)
        self.post_message(self.FilterChanged(row_filter))
