"""The help of the focused pane and of its page, with their keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from spbench.tui.guide.actions import ActiveAction, Scope, list_actions, sort_by_relevance
from spbench.tui.widgets.prose import render_prose
from spbench.tui.widgets.text import cell_width

NO_HELP = "No help here."
_KEY_SEPARATOR = ", "
_ID_HEADING = "name in settings"
GENERAL_HELP = """\
The palette (Ctrl+P) finds each action by a word of its description, on any page. It also has help
on tasks: batch jobs, launchers, defaults, baselines, slow ranks and planted faults."""


class HelpScreen(ModalScreen[None]):
    """The help of the focused pane, the page and the console: texts and keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "app.pop_screen", "Close", id="help.close"),
    ]
    DEFAULT_CSS = """
    HelpScreen Static { height: auto; }
    HelpScreen .heading { color: $text-primary; text-style: bold; margin-top: 1; }
    HelpScreen .heading:first-child { margin-top: 0; }
    """

    def __init__(self, texts: dict[Scope, str], actions: list[ActiveAction]) -> None:
        super().__init__()
        self._texts = texts
        self._actions = actions
        self._has_heading = False

    def compose(self) -> ComposeResult:
        with VerticalScroll() as frame:
            frame.border_title = "Help"
            frame.border_subtitle = "Esc closes"
            for scope in Scope:
                yield from self._compose_section(scope)

    def _compose_section(self, scope: Scope) -> ComposeResult:
        text = self._texts.get(scope, "")
        actions = [action for action in self._actions if action.scope is scope]
        actions.sort(key=lambda action: action.is_motion)
        if not text and not actions:
            return
        yield Static(scope.value, classes="heading")
        if text:
            yield Static(render_prose(text))
        if actions:
            yield Static(self._build_table(actions, is_first=not self._has_heading))
            self._has_heading = True

    def _build_table(self, actions: Iterable[ActiveAction], is_first: bool) -> Table:
        """Return keys, descriptions and ids; all sections have columns of the same width."""
        table = Table(box=None, show_header=is_first, pad_edge=False, expand=True)
        key_width = max(cell_width(_KEY_SEPARATOR.join(action.keys)) for action in self._actions)
        ids = [action.id for action in self._actions]
        id_width = max(map(cell_width, (_ID_HEADING, *ids)))
        table.add_column(width=key_width, style="bold")
        table.add_column(ratio=1)
        table.add_column(_ID_HEADING, width=id_width, style="dim", header_style="dim")
        for action in actions:
            cells = (_KEY_SEPARATOR.join(action.keys), action.description, action.id)
            table.add_row(*(Text(cell) for cell in cells))
        return table


def make_help_screen(screen: Screen[object]) -> HelpScreen:
    """Return the help of the focused widget and of the screen around it."""
    return HelpScreen(collect_texts(screen), sort_by_relevance(screen, list_actions(screen)))


def collect_texts(screen: Screen[object]) -> dict[Scope, str]:
    """Return the help texts of the focused pane and of the page or dialog."""
    nodes: list[DOMNode] = []
    if screen.focused is not None:
        nodes = [node for node in screen.focused.ancestors_with_self if node is not screen]
        nodes.reverse()  # the pane before the table in it
    texts = {Scope.PANE: _join_helps(nodes)}
    texts[Scope.DIALOG if screen.is_modal else Scope.PAGE] = _join_helps([screen])
    if not any(texts.values()):
        texts[Scope.PAGE] = NO_HELP
    return texts | {Scope.EVERYWHERE: GENERAL_HELP}


def _join_helps(nodes: Iterable[DOMNode]) -> str:
    helps = [getattr(node, "HELP", "") for node in nodes]
    texts = [text.strip() for text in helps if isinstance(text, str) and text.strip()]
    return "\n\n".join(dict.fromkeys(texts))
