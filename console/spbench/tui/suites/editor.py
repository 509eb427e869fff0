"""The editor of a suite's text: YAML in colours, and a sign at each line that has a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import Location, TextAreaTheme

from spbench.tui.widgets.text import ComponentStyles
from spbench.tui.widgets.text_box import TextBox

PROBLEM_SIGN = "✗"
_PAGE_KEYS = ("f6", "f7")
"""Keys of a text area that pages have for actions of their own."""
_PAGE_ACTIONS = ("undo", "redo")
"""Actions of a text area that the page has, so that they work beside the text as well."""
_CAPTURES = {
    "yaml.field": "field",
    "string": "string",
    "string.escape": "string",
    "number": "number",
    "boolean": "word",
    "constant.builtin": "word",
    "type": "anchor",
    "comment": "comment",
    "punctuation.delimiter": "punctuation",
    "punctuation.bracket": "punctuation",
    "punctuation.special": "anchor",
}
"""What the YAML parser finds, and the word of its colour."""


class SuiteEditor(TextBox, inherit_bindings=False):
    """A YAML editor in the colours of the app's theme, which marks lines that have a problem."""

    HELP: ClassVar[str] = """\
The suite's text. What is wrong is marked ✗ at its line while you type, and said below the text.
Escape leaves the text, so that all keys of the page work; its function keys work here too.
Ctrl+Z takes a change back, Ctrl+Y makes it again."""
    BINDINGS: ClassVar[list[BindingType]] = [
        binding
        for binding in TextArea.BINDINGS
        if isinstance(binding, Binding)
        and binding.key not in _PAGE_KEYS
        and binding.action not in _PAGE_ACTIONS
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"suite-editor--{word}" for word in (*_CAPTURES.values(), "problem", "sign")
    }
    DEFAULT_CSS = """
    SuiteEditor {
        border: none; padding: 0; background: $surface; scrollbar-size: 1 1;
        &:focus { border: none; }
        & > .suite-editor--field { color: $text-primary; }
        & > .suite-editor--string { color: $foreground; }
        & > .suite-editor--number { color: $text-accent; }
        & > .suite-editor--word { color: $text-warning; }
        & > .suite-editor--anchor { color: $text-secondary; text-style: bold; }
        & > .suite-editor--comment { color: $text-muted; text-style: italic; }
        & > .suite-editor--punctuation { color: $text-muted; }
        & > .suite-editor--problem { background: $error 20%; }
        & > .suite-editor--sign { color: $text-error; text-style: bold; }
    }
    """

    def __init__(self, text: str = "", *, numbers: bool = True, id: str | None = None) -> None:
        super().__init__(
            text,
            language="yaml",
            soft_wrap=False,
            tab_behavior="indent",
            show_line_numbers=numbers,
            max_checkpoints=200,
            id=id,
        )
        self.indent_width = 2
        self._problems: dict[int, int] = {}
        self._style = ComponentStyles(self, "suite-editor")
        self._colours: dict[str, Style] = {}
        self.register_theme(TextAreaTheme("suite", syntax_styles=self._colours))
        self.theme = "suite"

    # Text

    @property
    def cursor_line(self) -> int:
        """The line of the cursor, from 1."""
        return self.cursor_location[0] + 1

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return not self.read_only and bool(self.history.undo_stack)

    @property
    def can_redo(self) -> bool:
        """Whether a change was taken back that can be made again."""
        return not self.read_only and bool(self.history.redo_stack)

    def replace_text(self, text: str, line: int) -> None:
        """Make the text another one, in one step that can be undone, and go to a line of it."""
        before = "\n".join(self.document.lines)
        after = "\n".join(split_lines(text))
        start = _alike(before, after)
        kept = _alike(before[start:][::-1], after[start:][::-1])
        end = len(before) - kept
        self.history.checkpoint()
        self.replace(
            after[start : len(after) - kept],
            _location(before, start),
            _location(before, end),
            maintain_selection_offset=False,
        )
        self.history.checkpoint()
        self.go_to(line)

    def go_to(self, line: int, column: int = 1) -> None:
        """Put the cursor on a place, both from 1, and bring it into view."""
        self.move_cursor((line - 1, column - 1), center=True)

    # Problems

    def mark_problems(self, problems: Mapping[int, int]) -> None:
        """Mark lines, from 1, each from a column on; all others are without a problem."""
        marks = {line - 1: column - 1 for line, column in problems.items()}
        if marks != self._problems:
            self._problems = marks
            self._line_cache.clear()
            self.refresh()

    def get_line(self, line_index: int) -> Text:
        """Return a line; what is wrong in it is underlined."""
        line = super().get_line(line_index)
        column = self._problems.get(line_index)
        if column is not None:
            end = len(line.plain.rstrip())
            line.stylize(Style(underline=True), min(column, max(end - 1, 0)), end)
        return line

    # Drawing

    def notify_style_update(self) -> None:
        """Forget the colours of before."""
        super().notify_style_update()
        self._style.clear()
        self._colours.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines in the colours of now."""
        if not self._colours:
            self._colours.update((name, self._letters(word)) for name, word in _CAPTURES.items())
        return super().render_lines(crop)

    def _letters(self, word: str) -> Style:
        style = self._style(word)
        return Style(color=style.color, bold=style.bold, italic=style.italic)

    def _render_line(self, y: int) -> Strip:
        strip = super()._render_line(y)
        row = y + self.scroll_offset.y
        if row not in self._problems or row >= self.document.line_count:
            return strip
        gutter = self.gutter_width
        ground = self.rich_style.bgcolor
        tint = self._style("problem").bgcolor
        tinted = [
            Segment(text, (style or Style()) + Style(bgcolor=tint))
            if style is None or style.bgcolor in (None, ground)
            else Segment(text, style)
            for text, style, _ in strip.crop(gutter)
        ]
        if not gutter:
            return Strip(tinted, strip.cell_length)
        number = f"{row + self.line_number_start:>{gutter - 2}}{PROBLEM_SIGN} "
        return Strip([Segment(number, self._style("sign")), *tinted], strip.cell_length)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text as an editor has them: after a last line end comes another."""
    return [*text.splitlines(), ""] if text.endswith(("\n", "\r")) else text.splitlines() or [""]


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _location(text: str, offset: int) -> Location:
    return text.count("\n", 0, offset), offset - text.rfind("\n", 0, offset) - 1
