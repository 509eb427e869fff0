"""Formats for log collectors, one message per line: JSON lines and syslog."""

from __future__ import annotations

import json
import re

from spbench.record.number_formatting import format_time, replace_controls
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.records import metric_records
from spbench.report.times import format_timestamp
from spbench_core.events.statuses import CaseStatus

_FACILITY = 16
"""The facility local0 of syslog."""
_SEVERITIES = {
    CaseStatus.PASSED: 6,
    CaseStatus.FAILED: 4,
    CaseStatus.FLAKY: 5,
    CaseStatus.SKIPPED: 5,
    CaseStatus.CANCELLED: 5,
}
"""Severities by status: information, warning or notice; other statuses are errors."""
_ERROR = 3
_DATA_ID = "spbench@32473"
"""The name of the structured data; RFC 5612 reserves the number 32473 for examples."""
_HEADLINE = "time_ms"
_MAX_HOST = 255


def render_json_lines(run: RecordedRun) -> str:
    """Return a run as JSON lines: an object for each case and metric, without nulls."""
    rows = (
        {column: cell for column, cell in row.items() if cell is not None}
        for row in metric_records(run)
    )
    return "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)


def render_syslog(run: RecordedRun) -> str:
    """Return a run as RFC 5424 messages, one per case, for ``logger`` or a socket."""
    moment = format_timestamp(run.summary.finished or run.summary.started) or "-"
    return "".join(f"{_render_message(run, case, moment)}\n" for case in run.cases.values())


def _render_message(run: RecordedRun, case: CasePart, moment: str) -> str:
    priority = _FACILITY * 8 + _SEVERITIES.get(case.status, _ERROR)
    time = case.metrics.get(_HEADLINE)
    parameters = {
        "run": run.summary.id,
        "suite": run.summary.suite,
        "case": case.id,
        "status": case.status,
        **({_HEADLINE: repr(time.value)} if time is not None else {}),
    }
    structured_data = " ".join(
        f'{name}="{_escape_value(parameter_text)}"' for name, parameter_text in parameters.items()
    )
    duration = "" if time is None else f", {format_time(time.value)}"
    reason = f": {case.reason}" if case.reason else ""
    text = replace_controls(" ".join(f"{case.status} {case.id}{duration}{reason}".split()))
    head = f"<{priority}>1 {moment} {_format_host(run)} spbench - case"
    return f"{head} [{_DATA_ID} {structured_data}] {text}"


def _format_host(run: RecordedRun) -> str:
    """Return the host in the form of RFC 5424: up to 255 visible ASCII characters."""
    return re.sub(r"[^!-~]", "_", run.summary.host or "")[:_MAX_HOST] or "-"


def _escape_value(value: str) -> str:
    text = replace_controls(" ".join(value.split())).replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("]", "\\]")
