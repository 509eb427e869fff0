"""Text in Markdown, of which nothing is read as Markdown or HTML."""

from __future__ import annotations

import re

from spbench.record.number_formatting import clean

# an underscore within a word, as in time_ms, marks nothing
_MARKS = re.compile(r"([\\`*\[\]<>#~|&!$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z]))")


def escape_markdown(text: str) -> str:
    """Return a text in one line, with a backslash before each character with a meaning."""
    return _MARKS.sub(r"\\\1", clean(" ".join(text.split())))
