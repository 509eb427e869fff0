"""Explanations, written in lines of source code and shown in lines of any width."""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual.content import Content

FULL_LINE = 88
"""Characters from which a line of the source cannot have another word."""
_SENTENCE_ENDS = (".", ":", "!", "?")
_CODE = re.compile(r"`([^`]+)`")


def join_lines(text: str) -> str:
    """Join the lines of a text that were broken only because the source is narrow.

    A full stop before the end of a full line keeps the break, and so does an empty line.
    """
    return "".join(_iterate_pieces(text.strip().splitlines()))


def _iterate_pieces(lines: list[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield line.rstrip()
        if index + 1 == len(lines):
            return
        next_line = lines[index + 1]
        is_end = line.rstrip().endswith(_SENTENCE_ENDS) and len(line) < FULL_LINE
        keeps_break = is_end or not line.strip() or not next_line.strip()
        yield "\n" if keeps_break or next_line.startswith(" ") else " "


def render_prose(text: str) -> Content:
    """Return a text with joined lines, and code in another style without backticks."""
    parts = _CODE.split(join_lines(text))
    return Content.assemble(
        *((part, "bold $text-accent") if index % 2 else part for index, part in enumerate(parts))
    )
