"""Lists of definitions, wrapped text and lines that fit a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

Row = tuple[str, str]
"""A name and its description."""
_NAME_WIDTH = 28
"""Columns of the longest name that has its description on the same line."""
_NO_BREAK = "\N{NO-BREAK SPACE}"


def cut_line(line: str, width: int | None) -> str:
    """Return a line of at most so many columns, its end replaced by a sign; None: the line."""
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
    """Return names and their descriptions side by side, each description wrapped to the width."""
    column = find_definition_column(rows, indent) if column is None else column
    lines = []
    for name, text in rows:
        label = " " * indent + name
        parts = wrap_description(text, width - column)
        if len(label) + 2 > column:
            lines.append(label)
        else:
            first = parts.pop(0) if parts else ""
            lines.append(f"{label:<{column}}{first}".rstrip())
        lines += [" " * column + part for part in parts]
    return lines


def wrap_description(text: str, width: int) -> list[str]:
    """Return the lines of a text; what ``[default: ...]`` has in it stays on one line."""
    before, mark, default = text.rpartition("[default: ")
    if mark and len(mark + default) <= width:
        text = before + (mark + default).replace(" ", _NO_BREAK)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]
