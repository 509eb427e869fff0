"""The formats of a report by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from spbench.errors import UsageError, did_you_mean
from spbench.report.compare import RunComparison
from spbench.report.export import export_text
from spbench.report.formats.annotations import error_lines
from spbench.report.formats.junit import junit
from spbench.report.formats.markdown import markdown
from spbench.report.formats.openmetrics import openmetrics
from spbench.report.formats.page.document import html_page
from spbench.report.formats.trace.events import trace
from spbench.report.recorded import RecordedRun

FORMATS: Mapping[str, Callable[[RecordedRun], str]] = {
    "html": html_page,
    "md": markdown,
    "csv": partial(export_text, kind="csv"),
    "junit": junit,
    "openmetrics": openmetrics,
    "trace": trace,
    "annotations": error_lines,
}
_ALIASES = {"markdown": "md"}


def report_text(run: RecordedRun, kind: str, comparison: RunComparison | None = None) -> str:
    """Return a run in one of `FORMATS`; the page of HTML shows a comparison, too.

    Raises:
        UsageError: There is no such format, or the run has not what it takes.
    """
    name = _ALIASES.get(kind, kind)
    if name not in FORMATS:
        near = did_you_mean(kind, FORMATS)
        raise UsageError(f"there is no format {kind!r}{near}; there are {', '.join(FORMATS)}")
    return html_page(run, comparison) if name == "html" else FORMATS[name](run)
