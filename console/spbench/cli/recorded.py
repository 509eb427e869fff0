"""Recorded runs as commands read them: what of a log cannot be read is told on stderr."""

from __future__ import annotations

import sys

from spbench.record.number_formatting import printable
from spbench.record.runs.folder import RunFolder
from spbench.report.recorded import RecordedRun, load_run


def read_run(folder: RunFolder) -> RecordedRun:
    """Return what a run measured, and tell of lines of its log that were left out.

    Raises:
        UsageError: It has no report, and its event log cannot be read.
    """
    run = load_run(folder)
    if run.left_out:
        sys.stderr.write(f"spbench: note: {printable(run.left_out)}\n")
    return run
