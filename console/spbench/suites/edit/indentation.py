"""Indentation of YAML text as it is typed."""

from __future__ import annotations

INDENT = 2
"""The width of a level, in cells."""
_ITEM_DASH = "- "


def count_indent(line: str) -> int:
    """Return the number of spaces at the start of a line."""
    return len(line) - len(line.lstrip(" "))


def find_indent_of_next_line(line: str) -> int:
    """Return the indentation of the line that follows the text before the cursor.

    It is that of the line, one level deeper in an item of a list, and another after a key without
    a value. A comment at the end of the line does not count.
    """
    indent = count_indent(line)
    content = line[indent:]
    if content.startswith("#"):
        return indent
    while content.startswith(_ITEM_DASH):
        item_content = content[len(_ITEM_DASH) :].lstrip(" ")
        indent += len(content) - len(item_content)
        content = item_content
    if content.partition(" #")[0].rstrip().endswith(":"):
        indent += INDENT
    return indent


def shift_line(line: str, width: int) -> str:
    """Return a line with another indentation, unless it is blank."""
    if not line.strip():
        return line
    return " " * max(0, count_indent(line) + width) + line.lstrip(" ")
