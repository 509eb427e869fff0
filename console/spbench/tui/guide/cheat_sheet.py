"""The cheat sheet: the most important keys of a page in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from spbench.tui.guide.actions import Scope, list_actions, sort_by_relevance
from spbench.tui.pages import PAGES
from spbench.tui.widgets.keys import GENERAL_IDS
from spbench.tui.widgets.text import cell_width

_LAST_IDS = (
    *("app.jump", "app.messages"),
    *(id for id in GENERAL_IDS if id != "app.cheat-sheet"),
)
"""Ids of the actions at the end of the sheet."""
PAGE_DIGITS = (f"1-{len(PAGES)}", "Pages")
_GAP = 3
_FRAME = 4
"""Cells left and right of the keys."""

SheetKey = tuple[str, str]
"""A key and the short name of its action."""


class CheatSheet(ModalScreen[None]):
    """Keys in front of the page; any key or click closes them."""

    DEFAULT_CSS = """
    CheatSheet { align: left bottom; background: transparent; }
    CheatSheet > Static {
        width: 100%; height: auto; margin-bottom: 1; padding: 0 1;
        background: $panel; border: round $primary;
        border-title-color: $primary; border-subtitle-color: $text-muted;
    }
    """

    def __init__(self, keys: Sequence[SheetKey]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        frame = Static("", id="keys")
        frame.border_title = "Keys"
        frame.border_subtitle = "any key closes"
        yield frame

    def on_resize(self, event: events.Resize) -> None:
        """Lay out the keys in the new width."""
        lines = break_lines(self._keys, event.size.width - _FRAME)
        self.query_one(Static).update(Content("\n").join(map(_render_line, lines)))

    def on_key(self, event: events.Key) -> None:
        """Close the sheet."""
        event.stop()
        event.prevent_default()
        self.dismiss()

    def on_click(self) -> None:
        """Close the sheet."""
        self.dismiss()


def list_sheet_keys(screen: Screen[object]) -> list[SheetKey]:
    """Return the keys of page and pane that have an effect now, and some general ones."""
    actions = sort_by_relevance(screen, list_actions(screen))
    action_by_id = {action.id: action for action in actions}
    shown = [
        action
        for scope in (Scope.PAGE, Scope.PANE)
        for action in actions
        if action.scope is scope and action.offered and not action.is_motion
    ]
    launch = [action for action in actions if action.id.startswith("launch.")]
    last = [action_by_id[id] for id in _LAST_IDS if id in action_by_id]
    pairs = [(action.keys[0], action.title) for action in (*shown, *launch, *last)]
    return [*pairs[: -len(last)], PAGE_DIGITS, *pairs[-len(last) :]]


def break_lines(keys: Iterable[SheetKey], width: int) -> list[list[SheetKey]]:
    """Return keys in lines of at most ``width`` cells; a key is not divided."""
    lines: list[list[SheetKey]] = [[]]
    used = 0
    for key, title in keys:
        needed = cell_width(key) + 1 + cell_width(title)
        if lines[-1] and used + _GAP + needed > width:
            lines.append([])
            used = 0
        used += needed + (_GAP if lines[-1] else 0)
        lines[-1].append((key, title))
    return lines


def _render_line(keys: Iterable[SheetKey]) -> Content:
    spans = [Content.assemble((key, "bold $text-accent"), " ", title) for key, title in keys]
    return Content(" " * _GAP).join(spans)
