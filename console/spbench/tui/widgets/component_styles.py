"""The styles of a widget's component classes, by words, and text in them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual.widget import Widget


class ComponentStyles:
    """Looks up and keeps the styles of ``<prefix>--<word>``; a word without a class adds nothing.

    Several words may be given with spaces between: each changes what it has a rule for.
    Backgrounds and colours with an alpha are blended with what lies below the widget.
    """

    def __init__(self, widget: Widget, prefix: str) -> None:
        self._widget = widget
        self._prefix = prefix
        self._known: dict[str, Style] = {}

    def __call__(self, words: str = "") -> Style:
        """Return the style of the widget with those words applied."""
        style = self._known.get(words)
        if style is None:
            style = self._widget.rich_style
            for word in words.split():
                style += self._changes(f"{self._prefix}--{word}")
            self._known[words] = style
        return style

    def clear(self) -> None:
        """Forget all: the theme or the widget's state has changed."""
        self._known.clear()

    def _changes(self, name: str) -> Style:
        nothing = Style()
        own = self._widget.get_component_rich_style(name, partial=True, default=nothing)
        whole = self._widget.get_component_rich_style(name, default=nothing)
        return own.without_color + Style(
            color=whole.color if own.color else None,
            bgcolor=whole.bgcolor if own.bgcolor else None,
        )


def merge_segments(pieces: Iterable[tuple[str, Style]]) -> list[Segment]:
    """Return one segment for neighbours of one style: every later step costs by the segment."""
    segments = []
    texts = [""]
    last = Style()
    for text, style in pieces:
        if style is not last:
            segments.append(Segment("".join(texts), last))
            texts = []
            last = style
        texts.append(text)
    segments.append(Segment("".join(texts), last))
    return [segment for segment in segments if segment.text]
