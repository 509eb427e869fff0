"""Help for the focused widget, and every key that works there."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static


class HelpScreen(ModalScreen[None]):
    """The help of the focused widget, and the keys that work there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,question_mark", "app.pop_screen", "Close", id="help.close"),
    ]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background; }
    HelpScreen > VerticalScroll {
        width: 84; max-width: 96%; height: auto; max-height: 90%; padding: 1 2;
        background: $panel; border: round $primary;
    }
    """

    def __init__(self, words: str, keys: list[tuple[str, str, str]]) -> None:
        super().__init__()
        self._words = words
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self._words + "\n"))
            yield Static(self._table())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("key", "action", "id"):
            table.add_column(title)
        for row in self._keys:
            table.add_row(*(Text(cell) for cell in row))
        return table


def build_help(screen: Screen[object]) -> str:
    """Return the help of the focused widget, then of the pane and the page around it."""
    node = screen.focused or screen
    told = [getattr(widget, "HELP", "") for widget in node.ancestors_with_self]
    words = [one.strip() for one in told if isinstance(one, str) and one.strip()]
    return "\n\n".join(dict.fromkeys(words)) or "No help here."


def list_active_keys(screen: Screen[object]) -> list[tuple[str, str, str]]:
    """Return key, action and id of every binding that works now."""
    found: dict[tuple[str, str], list[str]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if active.enabled and binding.description:
            key = screen.app.get_key_display(binding)
            found.setdefault((binding.tooltip or binding.description, binding.id or ""), []).append(
                key
            )
    return [(" ".join(keys), what, name) for (what, name), keys in found.items()]
