"""The name and the text under which a run or a comparison is exported."""

from __future__ import annotations

from spbench.report.compare import RunComparison
from spbench.report.export import export_comparison, export_text
from spbench.report.recorded import RecordedRun


def named(what: RecordedRun | RunComparison) -> tuple[str, str]:
    """Return words for a question, and the name of a file without its ending."""
    if isinstance(what, RunComparison):
        return "the comparison", f"{what.a.id}--{what.b.id}"
    return f"the run {what.summary.id}", what.summary.id


def exported(what: RecordedRun | RunComparison, kind: str) -> str:
    """Return the text of an export in a format of `KINDS`."""
    return (
        export_comparison(what, kind)
        if isinstance(what, RunComparison)
        else export_text(what, kind)
    )
