"""A Grafana dashboard of the metric families in a run's OpenMetrics text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from spbench.report.formats.openmetrics import render_openmetrics
from spbench.report.recorded import RecordedRun

SCHEMA_VERSION = 39
"""The version of Grafana's format: that of Grafana 10.4, which later versions read."""
_WIDTH = 12
_HEIGHT = 8
"""The size of a panel; the grid has 24 columns."""
_UNITS = {
    "seconds": "s",
    "bytes": "bytes",
    "bytes_per_second": "Bps",
    "flops": "flops",
    "per_second": "ops",
}
"""Grafana's units by the end of a family's name."""
_DATA_SOURCE = {"type": "prometheus", "uid": "${source}"}
_CASE_FAMILY = re.compile(r"^# TYPE (spbench_case_\w+) gauge$", re.MULTILINE)


def render_dashboard(run: RecordedRun) -> str:
    """Return a dashboard as JSON: statuses, and the run's metrics over time by case.

    Its variables are the data source, the suite, the cases and the statistic.
    """
    families = _CASE_FAMILY.findall(render_openmetrics(run))
    panels = [*_generate_status_panels(), *(_make_metric_panel(name) for name in families)]
    for index, panel in enumerate(panels):
        row, column = divmod(index, 2)
        panel |= {"id": index + 1}
        panel["gridPos"] = {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT}
    document = {
        "title": f"spbench: {run.summary.suite}",
        "uid": None,
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["spbench"],
        "time": {"from": "now-30d", "to": "now"},
        "templating": {"list": list(_generate_variables(run.summary.suite))},
        "panels": panels,
    }
    return json.dumps(document, indent=1) + "\n"


def _generate_variables(suite: str) -> Iterator[dict[str, Any]]:
    yield {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    yield _make_query_variable("suite", "label_values(spbench_run_info, suite)", suite)
    yield _make_query_variable(
        "case", 'label_values(spbench_passed{suite="$suite"}, case)', "$__all", many=True
    )
    yield {
        "name": "stat",
        "label": "Statistic",
        "type": "custom",
        "query": "p50,p95,max",
        "current": {"text": "p50", "value": "p50"},
    }


def _make_query_variable(
    name: str, query: str, first: str, *, many: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _DATA_SOURCE,
        "query": query,
        "refresh": 2,
        "multi": many,
        "includeAll": many,
        "current": {"text": "All" if many else first, "value": first},
    }


def _generate_status_panels() -> Iterator[dict[str, Any]]:
    yield _make_panel(
        "Cases that passed",
        "state-timeline",
        'spbench_passed{suite="$suite",case=~"$case"}',
        mappings=[{"type": "value", "options": {"0": {"text": "no"}, "1": {"text": "yes"}}}],
    )
    yield _make_panel(
        "Cases by status", "timeseries", 'spbench_run_cases{suite="$suite"}', "{{status}}"
    )


def _make_metric_panel(name: str) -> dict[str, Any]:
    title = name.removeprefix("spbench_case_").replace("_", " ")
    query = f'{name}{{suite="$suite",case=~"$case",stat="$stat"}}'
    # The longest ending first: bytes_per_second also ends with per_second.
    endings = sorted(_UNITS, key=len, reverse=True)
    unit = next((_UNITS[ending] for ending in endings if name.endswith(ending)), "")
    return _make_panel(title, "timeseries", query, unit=unit)


def _make_panel(
    title: str,
    panel_type: str,
    query: str,
    legend: str = "{{case}}",
    *,
    unit: str = "",
    mappings: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    defaults = {"mappings": mappings or []} | ({"unit": unit} if unit else {})
    return {
        "title": title,
        "type": panel_type,
        "datasource": _DATA_SOURCE,
        "targets": [
            {"refId": "A", "datasource": _DATA_SOURCE, "expr": query, "legendFormat": legend}
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
