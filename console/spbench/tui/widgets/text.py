"""Text in terminal cells: fitted to a width, and styled by component classes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Literal

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from spbench.record.number_formatting import replace_controls

Align = Literal["left", "right"]
_ELLIPSIS = "…"


class TextBlock(Static):
    """A wrapped text that often changes, but seldom its height."""

    def show(self, content: Content) -> None:
        """Show a text; only another height causes a layout of the page."""
        (width, height) = self.size
        has_other_height = not width or content.get_height({}, width) != height
        self.update(content, layout=has_other_height)


def cell_width(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, align: Align = "left") -> str:
    """Return a text in exactly ``width`` cells; an ellipsis marks a cut."""
    if width <= 0:
        return ""
    text = replace_controls(text)
    text_width = cell_width(text)
    if text_width > width:
        return set_cell_size(text, width - 1) + _ELLIPSIS
    padding = " " * (width - text_width)
    return padding + text if align == "right" else text + padding


def shorten_path(path: str, width: int) -> str:
    """Return a path in at most ``width`` cells; the folder is cut before the name."""
    path = replace_controls(path)
    if cell_width(path) <= width:
        return path
    folder, slash, name = path.rpartition("/")
    end = f"{_ELLIPSIS}{slash}{name}"
    if slash and cell_width(end) < width:
        return set_cell_size(folder, width - cell_width(end)) + end
    while name and cell_width(name) >= width:
        name = name[1:]
    return _ELLIPSIS + name


def wrap_at_separators(text: str, first_width: int, other_width: int) -> list[str]:
    """Return a text in lines that end after a blank, slash or comma.

    A line ends elsewhere if more than a third of it would be blank.

    Args:
        text: The text, such as a line of a traceback with its path.
        first_width: The cells of the first line.
        other_width: The cells of the others.
    """
    text = replace_controls(text)
    if not text.isascii():
        first, *others = chop_cells(text, first_width)
        return [first, *(chop_cells("".join(others), other_width) if others else ())]
    lines: list[str] = []
    width = first_width
    while len(text) > width:
        end = max(text.rfind(separator, 0, width) for separator in " /,") + 1
        if end <= width - width // 3:
            end = width
        lines.append(text[:end])
        text = text[end:]
        width = other_width
    return [*lines, text]


def wrap_words(text: str, width: int, max_lines: int) -> list[str]:
    """Return lines of whole words; the last one is cut if there are too many."""
    lines = textwrap.wrap(replace_controls(text), max(1, width)) or [""]
    if len(lines) <= max_lines:
        return lines
    last_line = join_fitting([" ".join(lines[max_lines - 1 :])], width)
    return [*lines[: max_lines - 1], last_line]


def fit_lines(content: Content, width: int, count: int, cut: str = _ELLIPSIS) -> Content:
    """Return a text wrapped to at most ``count`` lines; a cut one ends in ``cut``."""
    if width <= 0 or count <= 0:
        return content
    lines = content.wrap(width)
    if len(lines) <= count:
        return content
    last = lines[count - 1].rstrip()
    if cell_width(last.plain) + cell_width(cut) > width:
        last = last[: width - cell_width(cut)]
    return Content("\n").join([*lines[: count - 1], last + cut])


def join_fitting(phrases: Iterable[str], width: int) -> str:
    """Return the first phrases that fit in ``width`` cells, without empty ones."""
    first, *others = [replace_controls(phrase) for phrase in phrases if phrase] or [""]
    line = first
    for phrase in others:
        if cell_width(line) + 2 + cell_width(phrase) > width:
            break
        line += f", {phrase}"
    return line if cell_width(line) <= width else fit(line, width)


class ComponentStyles:
    """Cached styles of the component classes ``<prefix>--<name>``.

    Several names may be given with spaces between them. Each name changes only the properties that
    its rule sets; a name without a class changes nothing. Backgrounds and colours with an alpha are
    blended with the background of the widget.
    """

    def __init__(self, widget: Widget, prefix: str) -> None:
        self._widget = widget
        self._prefix = prefix
        self._cache: dict[str, Style] = {}

    def __call__(self, names: str = "") -> Style:
        """Return the style of the widget with the rules of these names applied."""
        style = self._cache.get(names)
        if style is None:
            style = self._widget.rich_style
            for name in names.split():
                style += self._get_changes(f"{self._prefix}--{name}")
            self._cache[names] = style
        return style

    def clear(self) -> None:
        """Forget all styles, because the theme or the state of the widget has changed."""
        self._cache.clear()

    def _get_changes(self, component: str) -> Style:
        default = Style()
        partial = self._widget.get_component_rich_style(component, partial=True, default=default)
        blended = self._widget.get_component_rich_style(component, default=default)
        return partial.without_color + Style(
            color=blended.color if partial.color else None,
            bgcolor=blended.bgcolor if partial.bgcolor else None,
        )


def merge_segments(pieces: Iterable[tuple[str, Style]]) -> list[Segment]:
    """Return segments in which neighbours with the same style are joined.

    The cost of each later step of drawing grows with the number of segments.
    """
    segments = []
    texts = [""]
    last_style = Style()
    for text, style in pieces:
        if style is not last_style:
            segments.append(Segment("".join(texts), last_style))
            texts = []
            last_style = style
        texts.append(text)
    segments.append(Segment("".join(texts), last_style))
    return [segment for segment in segments if segment.text]
