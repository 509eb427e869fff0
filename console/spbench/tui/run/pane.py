"""A frame with a title around a part of the page."""

from __future__ import annotations

from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget


class Pane(Vertical):
    """A frame that can fill the page; where there is no room it is drawn without its lines."""

    ALLOW_MAXIMIZE = True
    DEFAULT_CSS = "Pane.-maximized { height: 1fr; max-height: 100%; }"

    def __init__(self, title: str, *children: Widget, id: str) -> None:
        super().__init__(*children, id=id, classes="pane")
        self._said = self._remark = ""
        self.set_title(title)

    def set_title(self, title: str) -> None:
        """Change the title."""
        if title != self._said:
            self._said = title
            self.border_title = Content(title)  # not read as markup

    def set_remark(self, remark: str) -> None:
        """Change the remark in the lower line of the frame."""
        if remark != self._remark:
            self._remark = remark
            self.border_subtitle = Content(remark)

    def set_framed(self, lines: bool) -> None:
        """Draw the frame's lines, or leave them out."""
        self.set_class(lines, "pane")
