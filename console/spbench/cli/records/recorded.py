"""Recorded runs for commands, with notes on unreadable lines of a log on stderr."""

from __future__ import annotations

import sys
from pathlib import Path

from spbench.record.number_formatting import replace_line_controls
from spbench.record.runs.folder import RunFolder, find_run
from spbench.report.baselines.creation import make_baseline_run
from spbench.report.baselines.files import (
    baseline_path,
    is_baseline,
    list_baseline_names,
    load_baseline,
)
from spbench.report.recorded import RecordedRun, load_report, load_run


def load_run_or_report(home: Path, name: str) -> RecordedRun:
    """Return the run of that name in a home folder, or of the report at that path.

    Raises:
        UsageError: There is no such run or report, or it cannot be read.
    """
    path = Path(name)
    return load_report(path) if path.is_file() else read_run(find_run(home, name))


def load_side(home: Path, name: str) -> RecordedRun:
    """Return a run, a report or a baseline of that name or path, to compare it.

    Raises:
        UsageError: There is none of these, or it cannot be read.
    """
    path = Path(name)
    if is_baseline(path) if path.is_file() else name in list_baseline_names(home):
        return make_baseline_run(load_baseline(home, name), baseline_path(home, name))
    return load_run_or_report(home, name)


def read_run(folder: RunFolder) -> RecordedRun:
    """Return a run, and print a note if lines of its log were left out.

    Raises:
        UsageError: It has no report, and its event log cannot be read.
    """
    run = load_run(folder)
    if run.left_out:
        sys.stderr.write(f"spbench: note: {replace_line_controls(run.left_out)}\n")
    return run
