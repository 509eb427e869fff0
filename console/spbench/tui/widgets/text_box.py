"""A text area whose text may become shorter than where its cursor stands."""

from __future__ import annotations

from textual.geometry import Offset
from textual.widgets import TextArea


class TextBox(TextArea):
    """Textual's text area, but for a crash where undo or redo makes the scroll bar go away."""

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Bring the cursor into view; it may still be below a text that has just become shorter.

        Textual brings it back into the text next, and asks for this again.
        """
        if self.cursor_location[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)
