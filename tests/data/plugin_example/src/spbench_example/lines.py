"""The format ``example_lines`` of reports: a line for each case."""

from __future__ import annotations

from spbench.report.recorded import RecordedRun

SPBENCH_PLUGIN_API = 1


def report(run: RecordedRun) -> str:
    """Return a line for each case of a run."""
    return "".join(f"{case.id} {case.status}\n" for case in run.cases.values())
