"""Text areas of several lines, for the editor of suites and for forms."""

from __future__ import annotations

from textual.actions import SkipAction
from textual.geometry import Offset
from textual.widgets import TextArea


class TextBox(TextArea):
    """A `TextArea` without Textual's crash when undo or redo hides the scroll bar."""

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Scroll to the cursor, unless it is below a text that has become shorter.

        In that case Textual moves the cursor into the text and calls this method again.
        """
        if self.cursor_location[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)


class LinesBox(TextBox):
    """A box of several lines; its form binds up in the first and down in the last."""

    def __init__(self, text: str, placeholder: str = "") -> None:
        super().__init__(text, compact=True, placeholder=placeholder)

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up a line; in the first line leave the key to the form."""
        if self.navigator.is_first_wrapped_line(self.cursor_location) and not select:
            raise SkipAction  # the form binds the key
        super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down a line; in the last line leave the key to the form."""
        if self.navigator.is_last_wrapped_line(self.cursor_location) and not select:
            raise SkipAction  # the form binds the key
        super().action_cursor_down(select)
