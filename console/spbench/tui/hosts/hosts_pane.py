"""The hosts of the source under the cursor, with a filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input, Static

from spbench.launch.survey.facts import HostFacts
from spbench.tui.hosts.host_rows import COLUMNS, HostRows
from spbench.tui.hosts.sources import HostSource
from spbench.tui.panes import FilterPane, leave_filter_key
from spbench.tui.widgets.line_table import LineTable


class HostsPane(FilterPane):
    """A table of hosts that fills as they answer.

    Args:
        facts: What is known of hosts, by name; grows as they answer.
        asking: The hosts that are being asked.
    """

    HELP = """\
The hosts in the order in which ranks fill them, and what each has said of itself: ✓ ok, ! with a
note, ✗ with something missing or out of reach, · not asked yet. d asks all of them over ssh, enter
the one under the cursor, escape stops asking. What was found, and how to fix it, stands below."""
    BINDINGS: ClassVar[list[BindingType]] = [leave_filter_key("hosts", "hosts")]
    DEFAULT_CSS = """
    HostsPane #source-error { height: 1fr; color: $text-error; display: none; }
    """

    def __init__(self, facts: Mapping[str, HostFacts], asking: set[str]) -> None:
        super().__init__("Hosts")
        self._rows = HostRows(facts, asking)

    def compose(self) -> ComposeResult:
        yield Input(placeholder="words that a host's row must have", id="filter", compact=True)
        yield Static("", id="source-error", markup=False)
        yield LineTable(COLUMNS, self._rows, id="hosts", empty="no hosts")

    @property
    def host(self) -> str | None:
        """The host under the cursor."""
        key = self.table.cursor_key
        return None if key is None else str(key)

    def show_source(self, source: HostSource) -> None:
        """Show the hosts of a source, or what is wrong with it."""
        self._rows.show(source.hosts)
        self.border_title = Content(f"Hosts of {source.title}")
        error = self.query_one("#source-error", Static)
        error.update(source.error)
        error.display = bool(source.error)
        self.table.display = not source.error
        self.table.set_rows(self._rows)

    def show_progress(self, words: str) -> None:
        """Tell how far the hosts were asked, and show what they have said."""
        self.border_subtitle = Content(words)
        self.table.update_rows()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the key to the page where there is no filter."""
        return action != "leave_filter" or self.query_one(Input).has_class("open")
