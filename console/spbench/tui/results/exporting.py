"""The name and the text under which a run or a comparison is exported."""

from __future__ import annotations

from spbench.report.comparison.model import RunComparison
from spbench.report.export import KINDS, export_comparison, export_text
from spbench.report.recorded import RecordedRun

PAGE_KIND = "html"
"""The format of a page to look at and to send."""


def describe_export(what: RecordedRun | RunComparison) -> tuple[str, str]:
    """Return words for a question, and the name of a file without its ending."""
    if isinstance(what, RunComparison):
        return "the comparison", f"{what.a.id}--{what.b.id}"
    return f"the run {what.summary.id}", what.summary.id


def render_export(what: RecordedRun | RunComparison, kind: str) -> str:
    """Return the text of an export in one of the formats of `kinds_of`."""
    if isinstance(what, RunComparison):
        return export_comparison(what, kind)
    if kind == PAGE_KIND:
        from spbench.report.formats.page.document import render_page

        return render_page(what)
    return export_text(what, kind)


def list_export_kinds(what: RecordedRun | RunComparison) -> tuple[str, ...]:
    """Return the formats in which it can be exported, the likeliest first."""
    return KINDS if isinstance(what, RunComparison) else (PAGE_KIND, *KINDS)
