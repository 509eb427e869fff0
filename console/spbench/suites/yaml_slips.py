"""Slips of typing that make YAML invalid, found in the lines near the error.

The parser often stops below the line with the slip. A message names that line and its remedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_KEY: Final = r"[A-Za-z_][\w.-]*"
_KEY_WITHOUT_SPACE = re.compile(rf"(?:-\s+)?({_KEY}):([^\s:].*)")
_DASH_WITHOUT_SPACE = re.compile(r"-([A-Za-z_].*)")
_TEXT_BEFORE_DASH = re.compile(r"""([^\s:#'"\[\]{},-]{1,3})\s*- .*""")
_WORD = re.compile(_KEY)
_KEY_AND_VALUE = re.compile(rf"(?:-\s+)?({_KEY})\s+(?:=\s*)?(\S.*)")
_KEY_AND_BRACKET = re.compile(rf"(?:-\s+)?({_KEY})\s+([\[{{]).*")
_COMMENT = re.compile(r"(^|\s)#.*")
_MAX_QUOTED: Final = 100
"""The number of characters up to which a message repeats a line."""


class Slip(NamedTuple):
    """A slip at a position, counted from 0, and its message."""

    line: int
    column: int
    text: str


def suggest_space(line: str) -> str:
    """Return a line with its missing space, or an empty text."""
    if match := _DASH_WITHOUT_SPACE.fullmatch(line):
        return f"write - {match[1]}"
    if match := _KEY_WITHOUT_SPACE.fullmatch(line):
        return f"write {match[1]}: {match[2]}"
    return ""


def find_text_before_dash(lines: Sequence[str], number: int) -> Slip | None:
    """Return the slip of text before the dash of an item: ``3- name: a``."""
    line = lines[number] if number < len(lines) else ""
    match = _TEXT_BEFORE_DASH.fullmatch(line.strip())
    if match is None:
        return None
    column = len(line) - len(line.lstrip())
    return Slip(number, column, f'unexpected {match[1]} before the "-" of a list item: remove it')


def find_missing_colon(lines: Sequence[str], number: int) -> Slip | None:
    """Return the slip of a key without a colon, in an item or before a bracket."""
    line = lines[number]
    text = line.strip()
    match = _KEY_AND_BRACKET.fullmatch(text)
    if match is not None:
        remedy = f"write {match[1]}: {match[2]}"
    elif text.startswith("- ") and ": " not in text and not text.endswith(":"):
        remedy = suggest_colon(lines, number)
    else:
        return None
    column = len(line) - len(line.lstrip(" -"))
    return Slip(number, column, f"this line has no colon behind its key: {remedy}")


def suggest_colon(lines: Sequence[str], number: int) -> str:
    """Return the remedy for a line without a colon and a space."""
    text = lines[number].strip()
    if remedy := suggest_space(text):
        return remedy
    word = text.removeprefix("- ").strip()
    if _WORD.fullmatch(word) and _find_indent(lines, number + 1) > _find_indent(lines, number):
        return f"write {word}:, or remove it"
    match = _KEY_AND_VALUE.fullmatch(text)
    if match is not None and len(text) <= _MAX_QUOTED:
        return f"write {match[1]}: {match[2]}, or indent it to continue a value"
    return "write it as KEY: VALUE, or remove it"


def find_low_indent(lines: Sequence[str], number: int, above: int) -> Slip | None:
    """Return the slip of a line above that is indented less than its neighbours."""
    indent = _find_key_indent(lines[number])
    neighbour = next((n for n in range(above - 1, -1, -1) if lines[n].strip(" \t#")), None)
    own_indent = _find_key_indent(lines[above])
    if neighbour is None or own_indent >= indent or _find_key_indent(lines[neighbour]) != indent:
        return None
    text = f"this line is indented less than lines {neighbour + 1} and {number + 1}: "
    return Slip(above, own_indent, f"{text}indent it by {indent} spaces")


def find_open_bracket(lines: Sequence[str], end_line: int) -> Slip | None:
    """Return the innermost bracket that is still open at the start of a line."""
    stack: list[Slip] = []
    for number, line in enumerate(lines[:end_line]):
        before = " "
        quote = ""
        for column, character in enumerate(_COMMENT.sub("", line)):
            if quote:
                quote = "" if character == quote else quote
            elif character in "'\"" and before in " [{,:":
                quote = character
            elif character in "[{" and before in " [{,:":
                closer = "]" if character == "[" else "}"
                text = f"the bracket {character} is not closed: add {closer}, or remove it"
                stack.append(Slip(number, column, text))
            elif character in "]}" and stack:
                stack.pop()
            before = character
    return stack[-1] if stack else None


def _find_indent(lines: Sequence[str], number: int) -> int:
    """Return the indentation of a line, or of the next one that is not blank."""
    text = next((line for line in lines[number:] if line.strip()), "")
    return len(text) - len(text.lstrip())


def _find_key_indent(line: str) -> int:
    """Return the column of the key of a line, behind the ``-`` of an item."""
    return len(line) - len(line.lstrip(" -"))
