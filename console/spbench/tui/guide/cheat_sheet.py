"""The cheat sheet: the most important keys of a page in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from spbench.tui.dialogs import Overlay
from spbench.tui.guide.actions import Scope, list_actions, sort_by_relevance
from spbench.tui.pages import PAGES
from spbench.tui.widgets.keys import GENERAL_IDS
from spbench.tui.widgets.text import cell_width

_LAST_IDS = (
    *("app.jump", "app.settings", "app.messages"),
    *(id for id in GENERAL_IDS if id != "app.cheat-sheet"),
)
"""Ids of the actions at the end of the sheet."""
PAGE_DIGITS = (f"1-{len(PAGES)}", "Pages")
_GAP = 3
_FRAME = 4
"""Cells left and right of the keys."""
_FRAME_ROWS = 3
"""Rows above and below the keys: the border and the key bar."""

SheetKey = tuple[str, str]
"""A key and the short name of its action."""


@dataclass(frozen=True, slots=True)
class SheetGroup:
    """The keys of a part of the screen."""

    title: str
    keys: tuple[SheetKey, ...]


class CheatSheet(Overlay[None]):
    """Keys in front of the page; any key or click closes them."""

    DEFAULT_CSS = """
    CheatSheet { align: left bottom; background: transparent; }
    CheatSheet > Static {
        width: 100%; height: auto; margin-bottom: 1; padding: 0 1;
        background: $panel; border: round $primary;
        border-title-color: $primary; border-subtitle-color: $text-muted;
    }
    """

    def __init__(self, groups: Sequence[SheetGroup]) -> None:
        super().__init__()
        self._groups = groups

    def compose(self) -> ComposeResult:
        frame = Static("", id="keys")
        frame.border_title = "Keys"
        frame.border_subtitle = "any key closes"
        yield frame

    def on_resize(self, event: events.Resize) -> None:
        """Lay out the keys in the new width."""
        width = event.size.width - _FRAME
        content = render_columns(self._groups, width, event.size.height - _FRAME_ROWS)
        self.query_one(Static).update(content or _render_paragraphs(self._groups, width))

    def on_key(self, event: events.Key) -> None:
        """Close the sheet."""
        event.stop()
        event.prevent_default()
        self.dismiss()

    def on_click(self) -> None:
        """Close the sheet."""
        self.dismiss()


def list_sheet_groups(screen: Screen[object]) -> list[SheetGroup]:
    """Return the keys of pane and page that have an effect now, and some general ones."""
    actions = sort_by_relevance(screen, list_actions(screen))
    action_by_id = {action.id: action for action in actions}
    groups = [
        SheetGroup(
            scope.value,
            tuple(
                (action.keys[0], action.title)
                for action in actions
                if action.scope is scope and action.offered and not action.is_motion
            ),
        )
        for scope in (Scope.PANE, Scope.PAGE)
    ]
    launch = [action for action in actions if action.id.startswith("launch.")]
    last = [action_by_id[id] for id in _LAST_IDS if id in action_by_id]
    general = [(action.keys[0], action.title) for action in (*launch, *last)]
    groups.append(SheetGroup(Scope.EVERYWHERE.value, (PAGE_DIGITS, *general)))
    return [group for group in groups if group.keys]


def render_columns(groups: Sequence[SheetGroup], width: int, height: int) -> Content | None:
    """Return groups in as few rows as possible; None if they do not fit."""
    for row_count in range(1, height):  # without the row of the headings
        columns = [column for group in groups for column in _make_columns(group, row_count)]
        if sum(column[0].cell_length for column in columns) + _GAP * (len(columns) - 1) <= width:
            rows = zip_longest(*columns)
            blanks = [Content(" " * column[0].cell_length) for column in columns]
            return Content("\n").join(
                Content(" " * _GAP).join(
                    cell or blank for cell, blank in zip(row, blanks, strict=True)
                )
                for row in rows
            )
    return None


def _make_columns(group: SheetGroup, row_count: int) -> list[list[Content]]:
    """Return a group in columns, each with the heading or a blank on top."""
    parts = [group.keys[i : i + row_count] for i in range(0, len(group.keys), row_count)]
    columns = []
    for index, part in enumerate(parts):
        heading = group.title if index == 0 else ""
        key_width = max(cell_width(key) for key, _ in part)
        cells = [
            Content.assemble(
                (key, "bold $text-accent"), " " * (key_width - cell_width(key)), " ", title
            )
            for key, title in part
        ]
        cells.insert(0, Content.styled(heading, "bold $text-primary"))
        column_width = max(cell.cell_length for cell in cells)
        columns.append([cell.pad_right(column_width - cell.cell_length) for cell in cells])
    return columns


def _render_paragraphs(groups: Iterable[SheetGroup], width: int) -> Content:
    """Return the groups as lines, for a screen that is too small for columns."""
    lines = [line for group in groups for line in break_lines(group.keys, width)]
    return Content("\n").join(map(_render_line, lines))


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
