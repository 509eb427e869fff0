"""The editor of a suite: YAML in colours, with a sign at each line with a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.binding import Binding, BindingType
from textual.document._edit import Edit
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import Selection, TextAreaTheme

from spbench.suites.edit.indentation import INDENT, find_indent_of_next_line, shift_line
from spbench.tui.chooser import Choice, Chooser
from spbench.tui.suites.text_changes import describe_lines, find_name, make_replacement
from spbench.tui.widgets.glyphs import PROBLEM_SIGN
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import ComponentStyles
from spbench.tui.widgets.text_box import TextBox

_PAGE_KEYS = ("f6", "f7")
"""Keys of a text area that the page uses for other actions."""
_SHORTENED_KEYS = {"delete,ctrl+d": "delete"}
"""Keys of a text area, without those that the page uses for other actions."""
_PAGE_ACTIONS = ("undo", "redo")
"""Actions of a text area that the page binds, so that they work without focus too."""
CUT_SIGN = "»"
"""In the last visible cell of a line that is longer."""
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
"""The captures of the YAML parser, and the names of their styles."""


class SuiteEditor(TextBox, inherit_bindings=False):
    """A YAML editor in the colours of the theme that marks lines with a problem.

    Attributes:
        last_step: A message on the step that was last undone or redone.
    """

    HELP: ClassVar[str] = """\
The text of the suite. Errors are marked ✗ at their line as you type, and listed below the text.
» marks a line with more text to the right; it scrolls with the cursor.
Enter keeps the indentation, and adds a level after "key:" and in an item "- ". Tab indents selected
lines or a blank line, and Shift+Tab unindents them. On any other line, they go to the next or
previous pane. Escape leads back to the cases, where all keys of the page work. The function keys
work here, too. Ctrl+Space lists the keys that are allowed at the cursor, or the values after
"key: ". Ctrl+G goes to the next error. Ctrl+Z undoes a change, Ctrl+Y redoes it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            replace(binding, key=_SHORTENED_KEYS.get(binding.key, binding.key))
            for binding in TextArea.BINDINGS
            if isinstance(binding, Binding)
            and binding.key not in _PAGE_KEYS
            and binding.action not in _PAGE_ACTIONS
        ),
        make_binding(
            "editor.leave",
            "escape",
            "app.focus('cases')",
            "Cases",
            "Go to the cases, where all keys of the page work",
            show=True,
        ),
        make_binding(
            "editor.complete",
            "ctrl+space,ctrl+@",
            "complete",
            "Complete",
            "List the keys or values allowed at the cursor",
            show=True,
        ),
        make_binding("editor.start", "ctrl+home", "move_to_start", "Start", "Go to the first line"),
        make_binding("editor.end", "ctrl+end", "move_to_end", "End", "Go to the end of the text"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"suite-editor--{name}" for name in (*_CAPTURES.values(), "problem", "sign", "cut")
    }
    DEFAULT_CSS = """
    SuiteEditor {
        border: none; padding: 0; background: $background; scrollbar-size: 0 1;
        &:focus { border: none; }
        & > .suite-editor--field { color: $text-primary; }
        & > .suite-editor--string { color: $foreground; }
        & > .suite-editor--number { color: $text-accent; }
        & > .suite-editor--word { color: $text-warning; }
        & > .suite-editor--anchor { color: $text-secondary; text-style: bold; }
        & > .suite-editor--comment { color: $text-muted; text-style: italic; }
        & > .suite-editor--punctuation { color: $text-muted; }
        & > .suite-editor--problem { background: $error 20%; }
        & > .suite-editor--cut { color: $text-warning; }
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
        self.indent_width = INDENT
        self._problems: dict[int, int] = {}
        self._style = ComponentStyles(self, "suite-editor")
        self._has_undone_typing = False
        self.last_step = ""
        self._colours: dict[str, Style] = {}
        self.register_theme(TextAreaTheme("suite", syntax_styles=self._colours))
        self.theme = "suite"

    @property
    def cursor_line(self) -> int:
        """The line of the cursor, from 1."""
        return self.cursor_location[0] + 1

    @property
    def can_undo(self) -> bool:
        """Whether a change can be undone."""
        return not self.read_only and bool(self.history.undo_stack)

    @property
    def can_redo(self) -> bool:
        """Whether an undone change can be redone."""
        return not self.read_only and bool(self.history.redo_stack)

    def replace_text(self, text: str, line: int, name: str) -> None:
        """Replace the whole text in one step that undo names, and go to a line.

        Only the part that differs is replaced.
        """
        self._has_undone_typing = False
        self.history.checkpoint()
        self.edit(make_replacement(self.document.lines, text, name))
        self.history.checkpoint()
        self.go_to(line)

    def undo(self) -> None:
        """Undo the last step, and record it in `last_step`.

        Undo stops once between typed text and an earlier change of another kind, so that repeated
        keys do not take back the work of a form by mistake.
        """
        steps = self.history.undo_stack
        name = find_name(steps[-1]) if steps else ""
        if name and self._has_undone_typing:
            self._has_undone_typing = False
            text = f"your typing is undone; Ctrl+Z again undoes: {name}"
            self.app.notify(text, severity="warning", timeout=8, markup=False)
            return
        self._has_undone_typing = bool(steps) and not name
        self._record_step(super().undo, steps, "undone: {} (Ctrl+Y redoes it)")

    def redo(self) -> None:
        """Redo the last undone step, and record it in `last_step`."""
        self._has_undone_typing = False
        steps = self.history.redo_stack
        self._record_step(super().redo, steps, "redone: {} (Ctrl+Z undoes it)")

    def _record_step(
        self, change: Callable[[], None], steps: Sequence[Sequence[Edit]], message: str
    ) -> None:
        lines = list(self.document.lines)
        change()
        if not steps:
            return
        name = find_name(steps[-1])
        self.last_step = message.format(name or describe_lines(lines, self.document.lines))

    def action_complete(self) -> None:
        """Ask for a key or value that is allowed at the cursor, and insert it."""
        if not self.read_only:
            self._complete()

    @work(exclusive=True, group="complete")
    async def _complete(self) -> None:
        from spbench.suites.edit.completion import complete  # takes 0.1 s, so not with the page

        row, column = self.cursor_location
        lines = list(self.document.lines)
        completion = await asyncio.to_thread(complete, lines, row, column)
        if completion is None:
            self.app.notify("no keys or values are known at the cursor", timeout=4)
            return
        choices = [Choice(name, text) for name, text in completion.text_by_word.items()]
        chooser = Chooser(completion.title, choices, text=completion.typed)
        word = await self.app.push_screen_wait(chooser)
        if word is not None:
            start = (row, column - len(completion.typed))
            self.replace(f"{word}{completion.suffix}", start, (row, column))
            self.move_cursor((row, start[1] + len(word) + len(completion.suffix)))

    def action_move_to_start(self) -> None:
        """Move the cursor to the start of the text."""
        self.move_cursor((0, 0))

    def action_move_to_end(self) -> None:
        """Move the cursor to the end of the text."""
        self.move_cursor(self.document.end)

    def on_key(self, event: events.Key) -> None:
        """Keep the indentation at Enter, and change it at Tab, Shift+Tab and Backspace.

        Tab and Shift+Tab leave the text from other lines, so that moving through the panes does not
        change it.
        """
        if self.read_only:
            return
        row, column = self.cursor_location
        before_cursor = self.document[row][:column]
        is_in_indent = not before_cursor.strip() and self.selection.is_empty
        if event.key == "enter":
            first_row, first_column = min(self.selection.start, self.selection.end)
            indent = find_indent_of_next_line(self.document[first_row][:first_column])
            self._replace_via_keyboard("\n" + " " * indent, *self.selection)
        elif event.key in ("tab", "shift+tab"):
            self._indent_or_leave(backwards=event.key == "shift+tab")
        elif event.key == "backspace" and is_in_indent and column:
            self.delete((row, column - ((column - 1) % INDENT + 1)), (row, column))
        else:
            return
        event.stop()
        event.prevent_default()

    def _indent_or_leave(self, backwards: bool) -> None:
        row, column = self.cursor_location
        if not self.selection.is_empty:
            self._shift_lines(-INDENT if backwards else INDENT)
        elif self.document[row].strip():
            if backwards:
                self.screen.focus_previous()
            else:
                self.screen.focus_next()
        elif backwards:
            self.delete((row, max(0, column - INDENT)), (row, column))
        else:
            self.insert(" " * INDENT)

    def _shift_lines(self, width: int) -> None:
        """Indent the selected lines, or unindent them if the width is negative."""
        start, end = self.selection
        first_row = min(start[0], end[0])
        last_row = max(start[0], end[0])
        lines = [self.document[row] for row in range(first_row, last_row + 1)]
        shifted_lines = [shift_line(line, width) for line in lines]
        if shifted_lines == lines:
            return
        self.history.checkpoint()
        self.replace("\n".join(shifted_lines), (first_row, 0), (last_row, len(lines[-1])))
        self.history.checkpoint()
        moves = [len(new) - len(old) for new, old in zip(shifted_lines, lines, strict=True)]
        self.selection = Selection(
            (start[0], max(0, start[1] + moves[start[0] - first_row])),
            (end[0], max(0, end[1] + moves[end[0] - first_row])),
        )

    def on_resize(self) -> None:
        """Keep the cursor in view, for example above a list of problems."""
        self.call_after_refresh(self.scroll_cursor_visible)

    def go_to(self, line: int, column: int = 1) -> None:
        """Move the cursor to line and column, both counted from 1, and scroll to it."""
        self.move_cursor((line - 1, column - 1), center=True)

    def mark_problems(self, problems: Mapping[int, int]) -> None:
        """Mark lines with a problem, given with the column where it starts, from 1."""
        marks = {line - 1: column - 1 for line, column in problems.items()}
        if marks != self._problems:
            self._problems = marks
            self._line_cache.clear()
            self.refresh()

    def get_line(self, line_index: int) -> Text:
        """Return a line, underlined from the column of its problem."""
        line = super().get_line(line_index)
        column = self._problems.get(line_index)
        if column is not None:
            end = len(line.plain.rstrip())
            line.stylize(Style(underline=True), min(column, max(end - 1, 0)), end)
        return line

    def notify_style_update(self) -> None:
        """Discard the previous colours."""
        super().notify_style_update()
        self._style.clear()
        self._colours.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render lines in the current colours."""
        if not self._colours:
            self._colours.update(
                (capture, self._get_text_style(name)) for capture, name in _CAPTURES.items()
            )
        return super().render_lines(crop)

    def _get_text_style(self, name: str) -> Style:
        style = self._style(name)
        return Style(color=style.color, bold=style.bold, italic=style.italic)

    def _render_line(self, y: int) -> Strip:
        strip = super()._render_line(y)
        line_index = y + self.scroll_offset.y
        if line_index >= self.document.line_count:
            return strip
        return self._mark_cut(self._mark_problem(strip, line_index), line_index)

    def _mark_cut(self, strip: Strip, line_index: int) -> Strip:
        """Return a line with a sign in its last cell if more is to the right."""
        width = self.scrollable_content_region.width
        end = self.scroll_offset.x + width - self.gutter_width
        has_cursor = self.cursor_location[0] == line_index and self._cursor_offset[0] == end - 1
        line_width = cell_len(self.document[line_index].expandtabs(self.indent_width))
        if line_width <= end or has_cursor:
            return strip
        style = next(iter(strip.crop(width - 1, width))).style or Style()
        sign = Segment(CUT_SIGN, style + Style(color=self._style("cut").color, bold=True))
        return Strip.join([strip.crop(0, width - 1), Strip([sign], 1), strip.crop(width)])

    def _mark_problem(self, strip: Strip, line_index: int) -> Strip:
        if line_index not in self._problems:
            return strip
        gutter = self.gutter_width
        background = self.rich_style.bgcolor
        problem_background = self._style("problem").bgcolor
        tinted_segments = [
            Segment(text, (style or Style()) + Style(bgcolor=problem_background))
            if style is None or style.bgcolor in (None, background)
            else Segment(text, style)
            for text, style, _ in strip.crop(gutter)
        ]
        if not gutter:
            return Strip(tinted_segments, strip.cell_length)
        line_number_text = f"{line_index + self.line_number_start:>{gutter - 2}}{PROBLEM_SIGN} "
        return Strip(
            [Segment(line_number_text, self._style("sign")), *tinted_segments], strip.cell_length
        )
