"""Plain text tables, and the width that they may take."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from spbench.report.text_tables import LEAST_WIDTH, PIPE_WIDTH, aligned

__all__ = ["PIPE_WIDTH", "aligned", "output_width"]


def output_width(stream: TextIO | None = None) -> int:
    """Return the columns of the terminal that a stream is, or those of output in a pipe.

    Args:
        stream: Where the lines are written; None: stdout.
    """
    if not (stream or sys.stdout).isatty():
        return PIPE_WIDTH
    return max(LEAST_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)
