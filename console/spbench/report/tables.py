"""The table of a run, cell by cell, as every view shows it."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.record.efficiency import format_metric
from spbench.record.metric_names import describe_separation, folded_name
from spbench.report.recorded import RecordedRun

RUN_COLUMNS = ("case", "status", "metric", "median", "p95", "p99", "n", "reference", "note")
FIGURE_COLUMNS = frozenset({"time", "median", "p95", "p99", "n", "reference", "efficiency"})
"""The columns that hold numbers."""


def run_rows(run: RecordedRun) -> Iterator[tuple[str, ...]]:
    """Yield the cells of `RUN_COLUMNS`: one row a metric; a case without any has one row."""
    for case in run.cases.values():
        for name, metric in case.metrics.items():
            limit = case.limits.get(name)
            figures = (metric.p95, metric.p99) if metric.n > 1 else (None, None)
            reference = limit.value if limit else None
            median, p95, p99, bound = (
                ""
                if value is None
                else format_metric(value, metric.unit, name, disturbed=case.disturbed)
                for value in (metric.value, *figures, reference)
            )
            title = folded_name(name, metric.unit)
            note = describe_separation(case.benchmark, name)
            yield (case.id, case.status, title, median, p95, p99, str(metric.n), bound, note)
        if not case.metrics:
            yield (case.id, case.status, *[""] * (len(RUN_COLUMNS) - 2))
