"""Plain text tables, and the width that they may take."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import TextIO

from spbench.record.number_formatting import strip_line_controls
from spbench.report.text_tables import LEAST_WIDTH, PIPE_WIDTH, align_columns, wrap_text

__all__ = ["PIPE_WIDTH", "align_columns", "indent_text", "output_width"]


def output_width(stream: TextIO | None = None) -> int:
    """Return the columns of the terminal that a stream is, or those of output in a pipe.

    Args:
        stream: Where the lines are written; None: stdout.
    """
    if not (stream or sys.stdout).isatty():
        return PIPE_WIDTH
    return max(LEAST_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def indent_text(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text, each wrapped to at most ``width`` columns with its indent."""
    for line in strip_line_controls(text).splitlines() or [""]:
        for piece in wrap_text(line, width - len(indent)) if line else [""]:
            yield f"{indent}{piece}"
