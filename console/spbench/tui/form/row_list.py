"""The rows of a form: all of them, or those that a search finds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import DOMQuery
from textual.widget import Widget

from spbench.suites.edit.fields import Field
from spbench.tui.form.field_row import FieldRow, FormRow, TextRow
from spbench.tui.form.texts import FormTexts

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "size": ("rows", "columns", "bytes", "edge", "elements"),
    "precision": ("dtype", "type of"),
    "type": ("dtype",),
    "steps": ("iterations",),
    "processes": ("ranks",),
    "gpu": ("device",),
    "sweep": ("swept", "exclude"),
    "swept": ("sweep", "exclude"),
    "skip": ("exclude", "leave out"),
    "omit": ("exclude", "leave out"),
}
"""Words of names and helps of fields, by other words that users search for."""
_MIN_STEM = 4
"""The length of a word from which an ``s`` at its end may be that of a plural."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A choice of rows.

    Attributes:
        text: Parts of the name of a row, or starts of words of its description; empty: any row.
        set_only: Whether a row has a value that is set.
    """

    text: str = ""
    set_only: bool = False

    def selects(self, row: FormRow) -> bool:
        """Return whether a row is chosen."""
        if self.set_only and not row.is_set:
            return False
        name = row.name_text.lower()
        search_text = row.search_text.lower()
        return all(
            any(
                synonym in name or _has_word_with_start(search_text, synonym)
                for synonym in (word, *_list_synonyms(word))
            )
            for word in self._words
        )

    def names(self, row: FormRow) -> bool:
        """Return whether the name of a row has all words, so that it comes first."""
        return bool(self._words) and all(word in row.name_text.lower() for word in self._words)

    def is_name_of(self, row: FormRow) -> bool:
        """Return whether the text is the whole name of a row, which is the first of all."""
        return self.text.strip().lower() == row.name_text.lower()

    @property
    def _words(self) -> list[str]:
        return self.text.lower().split()


def _list_synonyms(word: str) -> tuple[str, ...]:
    """Return the singular of a word, and other words for it."""
    stem = word.removesuffix("s")
    if len(stem) < _MIN_STEM or stem.endswith("s"):
        return SYNONYMS.get(word, ())
    return (stem, *SYNONYMS.get(stem, ()))


def _has_word_with_start(text: str, start: str) -> bool:
    """Return whether a word of a text begins so; the fault in default does not count."""
    return re.search(rf"(?<![^\W_]){re.escape(start)}", text) is not None


class _Position(NamedTuple):
    """The position of a heading or row without a search."""

    section: int
    index_in_list: int


class RowList(VerticalScroll, can_focus=False, inherit_bindings=False):
    """Headings and rows; up and down move between rows, unless a field uses them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move_focus(1)", "Next", id="form.next", tooltip="The next field"),
        Binding("up", "move_focus(-1)", "Before", id="form.before", tooltip="The field before"),
    ]

    def __init__(self, initial_texts: FormTexts, inherited: Mapping[str, str], id: str) -> None:
        super().__init__(id=id)
        self._initial_texts = initial_texts
        self._inherited_texts = inherited
        self._positions: dict[Widget, _Position] = {}

    def on_mount(self) -> None:
        """Record the order of headings and rows."""
        section = 0
        for child in self.children:
            section += not isinstance(child, FormRow)
            self._positions[child] = _Position(section, len(self._positions))

    def on_descendant_focus(self) -> None:
        """Show the focused row."""
        self.call_after_refresh(self._show_focused_row)

    def on_resize(self) -> None:
        """Show the focused row again, which other sizes may have moved out of the view."""
        self.call_after_refresh(self._show_focused_row)

    def watch_virtual_size(self) -> None:
        """Show the focused row again after rows above it have changed."""
        self.call_after_refresh(self._show_focused_row)

    def _show_focused_row(self) -> None:
        """Scroll to the focused row, and for the first row to the heading above it."""
        shown_rows = [row for row in self.rows if row.display]
        focused_row = next((row for row in shown_rows if row.has_focus_within), None)
        if focused_row is None:
            return
        if focused_row is shown_rows[0]:
            self.scroll_home(animate=False, immediate=True)
        else:
            self.scroll_to_widget(focused_row, animate=False, immediate=True)

    def action_move_focus(self, step: int) -> None:
        """Focus the next or previous box; the first and last one keep the focus."""
        boxes = [widget for widget in self.screen.focus_chain if self in widget.ancestors]
        index = next((i for i, box in enumerate(boxes) if box.has_focus), 0) + step
        if 0 <= index < len(boxes):
            boxes[index].focus()

    def mount_below(self, row: FormRow, new_row: FormRow) -> None:
        """Add a row below another one."""
        self._positions[new_row] = self._positions[row]
        self.mount(new_row, after=row)

    def _sort_rows(self, row_filter: RowFilter) -> None:
        """Sort sections, and the rows in each, by whether names have the searched words."""
        rows = [child for child in self.children if isinstance(child, FormRow)]
        named_rows = {row for row in rows if row_filter.names(row)}
        named_sections = {self._positions[row].section for row in named_rows}
        exact_rows = {row for row in named_rows if row_filter.is_name_of(row)}
        exact_sections = {self._positions[row].section for row in exact_rows}

        def find_rank(child: Widget) -> tuple[bool, bool, int, bool, bool, bool, int]:
            position = self._positions[child]
            return (
                position.section not in exact_sections,
                position.section not in named_sections,
                position.section,
                isinstance(child, FormRow),
                child not in exact_rows,
                child not in named_rows,
                position.index_in_list,
            )

        ranks = [find_rank(child) for child in self.children]
        if ranks != sorted(ranks):
            self.sort_children(key=find_rank)

    def build_field_rows(self, fields: Iterable[Field], prefix: str = "") -> Iterable[FieldRow]:
        """Yield the rows of fields; the prefix is part of the names of their texts."""
        for field in fields:
            key = prefix + field.name
            text = self._initial_texts.by_name.get(key, "")
            yield FieldRow(field, key, text, self._inherited_texts.get(key, ""))

    @property
    def rows(self) -> DOMQuery[FormRow]:
        """All rows, from top to bottom."""
        return self.query(FormRow)

    @property
    def texts(self) -> FormTexts:
        """The current texts of all rows."""
        return FormTexts({row.key: row.text for row in self.query(TextRow)})

    def handle_change(self, row: FormRow) -> None:
        """Check a row with a changed text."""
        row.check()
        row.refresh()  # its sign may have changed

    def show_errors(self, error_by_name: Mapping[str, str]) -> None:
        """Show the error of each row."""
        for row in self.query(TextRow):
            row.show_error(error_by_name.get(row.key))

    def show_defaults(self, default_by_name: Mapping[str, str]) -> None:
        """Show the defaults of empty fields, which follow from the other fields."""
        for row in self.query(FieldRow):
            if row.key in default_by_name and not row.text.strip():
                row.show_default(default_by_name[row.key])

    def filter_rows(self, row_filter: RowFilter) -> int:
        """Show only the chosen rows, with their headings, and return their number.

        Rows with the words in their names come before those with the words in their help.
        """
        self._sort_rows(row_filter)
        count = 0
        heading: Widget | None = None
        for child in self.children:
            if not isinstance(child, FormRow):
                heading = child
                heading.display = False
                continue
            child.display = row_filter.selects(child)
            if child.display:
                count += 1
                if heading is not None:
                    heading.display = True
        return count
