"""Recorded runs as rows for other programs: dictionaries of plain values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spbench.record.runs.history import RunSummary
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.times import format_timestamp

_STATISTICS = ("n", "min", "p50", "p95", "p99", "max", "mean", "stdev")


def metric_records(run: RecordedRun) -> list[dict[str, Any]]:
    """Return a row for each case and metric, with all parameters of the run's cases."""
    names = dict.fromkeys(name for case in run.cases.values() for name in case.params)
    return [
        {
            **case_columns(run.summary, case),
            **record,
            **{f"params.{name}": _to_plain_cell(case.params.get(name)) for name in names},
        }
        for case in run.cases.values()
        for record in _generate_metric_columns(case)
    ]


def sample_records(run: RecordedRun) -> list[dict[str, Any]]:
    """Return a row for each sample, which is an iteration's value over all ranks.

    The metric's rule folds the values of the ranks: a time is that of the slowest.
    """
    return [
        {
            "run": run.summary.id,
            "case": case.id,
            "metric": metric,
            "repeat": repeat,
            "iteration": iteration,
            "value": sample,
        }
        for case in run.cases.values()
        for metric, repeats in case.samples.items()
        for repeat, samples in enumerate(repeats)
        for iteration, sample in enumerate(samples)
    ]


def point_records(run: RecordedRun) -> list[dict[str, Any]]:
    """Return a row for each labelled value, such as a link's latency at one size."""
    return [
        {"run": run.summary.id, "case": case.id, **row}
        for case in run.cases.values()
        for row in case.measurements
    ]


def case_columns(summary: RunSummary, case: CasePart) -> dict[str, Any]:
    """Return the first columns of each row of a case."""
    return {
        "run": summary.id,
        "suite": summary.suite,
        "started": format_timestamp(summary.started),
        "host": summary.host,
        "case": case.id,
        "name": case.name,
        "benchmark": case.benchmark,
        "np": case.np,
        "status": case.status,
        "reason": case.reason,
    }


def _generate_metric_columns(case: CasePart) -> Iterator[Mapping[str, Any]]:
    columns = ("metric", "unit", "better", "value", *_STATISTICS, "limit")
    for name, metric in case.metrics.items():
        limit = case.limits.get(name)
        fields = dict(metric) | {"metric": name, "limit": limit.value if limit else None}
        yield {column: fields[column] for column in columns}
    if not case.metrics:
        yield dict.fromkeys(columns)


def _to_plain_cell(cell: Any) -> Any:
    return json.dumps(cell) if isinstance(cell, (list, dict)) else cell
