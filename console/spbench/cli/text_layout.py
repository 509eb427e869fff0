"""Text that fits a terminal: lists of definitions, wrapped lines, and the width."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

Row = tuple[str, str]
"""A name and its description."""
_NAME_WIDTH = 28
"""Columns of the longest name that has its description on the same line."""
_NO_BREAK = "\N{NO-BREAK SPACE}"


def cut_line(line: str, width: int | None) -> str:
    """Return a line cut to a width, with an ellipsis; None returns the whole line."""
    if width is None or len(line) <= width:
        return line
    return f"{line[: width - 1].rstrip()}…"


def find_definition_column(rows: Iterable[Row], indent: int = 2) -> int:
    """Return the column in which the descriptions of rows begin."""
    widths = [len(name) for name, _ in rows if len(name) <= _NAME_WIDTH]
    return indent + max(widths, default=_NAME_WIDTH) + 2


def format_definitions(
    rows: Sequence[Row], width: int, column: int | None = None, indent: int = 2
) -> list[str]:
    """Return names with descriptions next to them, wrapped to the width."""
    column = find_definition_column(rows, indent) if column is None else column
    lines = []
    for name, text in rows:
        label = " " * indent + name
        description_lines = wrap_description(text, width - column)
        if len(label) + 2 > column:
            lines.append(label)
        else:
            first_line = description_lines.pop(0) if description_lines else ""
            lines.append(f"{label:<{column}}{first_line}".rstrip())
        lines += [" " * column + description_line for description_line in description_lines]
    return lines


def wrap_description(text: str, width: int) -> list[str]:
    """Return the lines of a text, with ``[default: ...]`` on one line."""
    text_before, default_mark, default = text.rpartition("[default: ")
    if default_mark and len(default_mark + default) <= width:
        text = text_before + (default_mark + default).replace(" ", _NO_BREAK)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def output_width(stream: TextIO | None = None) -> int:
    """Return the columns of the terminal, or of output in a pipe.

    Args:
        stream: The stream of the output; None for stdout.
    """
    from spbench.report.text_tables import MIN_WIDTH, PIPE_WIDTH

    if not (stream or sys.stdout).isatty():
        return PIPE_WIDTH
    return max(MIN_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def indent_text(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text, indented and wrapped to at most `width` columns."""
    from spbench.record.number_formatting import replace_line_controls
    from spbench.report.text_tables import wrap_text

    for line in replace_line_controls(text).splitlines() or [""]:
        for part in wrap_text(line, width - len(indent)) if line else [""]:
            yield f"{indent}{part}"
