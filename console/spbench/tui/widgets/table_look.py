"""What a line table looks like, and its keys."""

from __future__ import annotations

from textual.binding import Binding, BindingType

HELP = """\
Rows that change as they are measured; ▸ marks the chosen one.
Up, down, page up, page down, home, end (or j, k, g, G) choose a row; enter opens it.
s sorts by the next column, S turns the order round; a click on a heading does both.
« and » tell of columns out of view: left and right scroll, w shows all or those that fit."""


def _key(keys: str, action: str, name: str, id: str, tooltip: str) -> Binding:
    return Binding(keys, action, name, show=False, id=f"table.{id}", tooltip=tooltip)


KEYS: list[BindingType] = [
    _key("up,k", "move(-1)", "Up", "up", "The row above"),
    _key("down,j", "move(1)", "Down", "down", "The row below"),
    _key("pageup", "page(-1)", "Page up", "page-up", "As many rows up as are in view"),
    _key("pagedown", "page(1)", "Page down", "page-down", "As many rows down as are in view"),
    _key("home,g", "first", "First", "first", "The first row"),
    _key("end,G", "last", "Last", "last", "The last row"),
    _key("left", "sideways(-1)", "Left", "left", "The columns to the left"),
    _key("right", "sideways(1)", "Right", "right", "The columns to the right"),
    _key("enter", "choose", "Open", "open", "Open the row"),
    _key("s", "sort", "Sort", "sort", "Sort by the next column"),
    _key("S", "reverse", "Reverse", "reverse", "Turn the order round"),
    _key("w", "wide", "All columns", "wide", "All columns, or those that fit"),
]

WORDS = (
    *("heading", "sorted", "paused", "cursor", "title", "accent", "muted", "slow"),
    *("passed", "failed", "error", "timeout", "cancelled", "skipped", "running", "waiting"),
)
"""The words a cell's style may be of."""

CSS = """
LineTable {
    width: 1fr; height: 1fr; background: $surface; color: $foreground;
    scrollbar-gutter: stable; scrollbar-size: 0 1;
    & > .line-table--heading { background: $panel; text-style: bold; }
    & > .line-table--sorted { color: $text-accent; }
    & > .line-table--paused { text-style: bold reverse; }
    & > .line-table--cursor { background: $primary 25%; }
    &:focus > .line-table--cursor { background: $primary 40%; text-style: bold; }
    & > .line-table--title { text-style: bold; }
    & > .line-table--accent { color: $text-accent; }
    & > .line-table--muted { color: $text-muted; }
    & > .line-table--slow { color: $text-warning; text-style: underline; }
    & > .line-table--passed { color: $text-success; }
    & > .line-table--failed { color: $text-error; text-style: bold; }
    & > .line-table--error { color: $text-error; text-style: bold; }
    & > .line-table--timeout { color: $text-error; text-style: bold; }
    & > .line-table--cancelled { color: $text-muted; }
    & > .line-table--skipped { color: $text-muted; }
    & > .line-table--running { color: $text-primary; }
    & > .line-table--waiting { color: $text-muted; }
}
"""
