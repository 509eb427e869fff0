"""The question before a file is overwritten that another program has changed."""

from __future__ import annotations

import difflib
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.tui.dialogs import Confirm

_STYLES_BY_START = {"+": "$text-success", "-": "$text-error", "@": "$text-muted"}


class OverwriteDialog(Confirm):
    """A question with the difference between a file and the editor's text.

    Args:
        question: The question.
        difference: The lines of `compare_texts`.
    """

    HELP = """\
The lines that saving removes from the file (-) and writes into it (+). The arrow keys scroll them.
Y overwrites the file, N or Escape leaves it as it is."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_difference('scroll_up')", "Up", id="overwrite.up"),
        Binding("down", "scroll_difference('scroll_down')", "Down", id="overwrite.down"),
        Binding("pageup", "scroll_difference('scroll_page_up')", id="overwrite.page-up"),
        Binding("pagedown", "scroll_difference('scroll_page_down')", id="overwrite.page-down"),
    ]
    DEFAULT_CSS = """
    OverwriteDialog #difference { margin-top: 1; }
    """

    def __init__(self, question: str, difference: list[str]) -> None:
        super().__init__(question, "Overwrite", "Do not save")
        self._difference = difference

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_subtitle = "↑ ↓ scroll"
            yield Static(self._question, markup=False)
            with VerticalScroll(id="difference", can_focus=False):
                yield Static(Content("\n").join(map(_render_line, self._difference)))
            yield Horizontal(*self.make_buttons())

    def action_scroll_difference(self, scroll: str) -> None:
        """Scroll the difference by a method of its container, such as ``scroll_up``."""
        getattr(self.query_one("#difference", VerticalScroll), scroll)(animate=False)


def compare_texts(on_disk: str, text: str) -> list[str]:
    """Return the unified difference from the file on disk to the text of the editor."""
    return list(
        difflib.unified_diff(
            on_disk.splitlines(), text.splitlines(), "on disk", "your text", lineterm=""
        )
    )


def _render_line(line: str) -> Content:
    return Content.styled(line, _STYLES_BY_START.get(line[:1], ""))
