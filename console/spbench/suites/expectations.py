"""Reads the ``expect:`` of a case entry: metrics, statistics and bounds."""

from __future__ import annotations

from typing import Any

from spbench.errors import did_you_mean
from spbench.suites.case import DERIVED_METRICS, STATISTICS, Expectation
from spbench.suites.findings import Findings
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark, Metric


def metrics_of(benchmark: Benchmark) -> tuple[Metric, ...]:
    """Return the metrics that an expectation on a benchmark can name: its own, then the report's.

    Each may be followed by one of `STATISTICS`, as ``time_ms.p95``.
    """
    return (*benchmark.metrics, *DERIVED_METRICS)


def metric_names(benchmark: Benchmark) -> list[str]:
    """Return the names of `metrics_of`."""
    return [metric.name for metric in metrics_of(benchmark)]


def read_expectations(
    benchmark: Benchmark, given: Any, path: KeyPath, findings: Findings
) -> tuple[Expectation, ...]:
    """Return the expectations at ``path``, telling ``findings`` of those that cannot be judged."""
    read: list[Expectation] = []
    for metric, bounds in given.items() if isinstance(given, dict) else ():
        here = (*path, metric)
        if problem := _unknown(benchmark, metric):
            findings.at_key(here, problem)
        if bounds == {}:
            findings.at_value(here, f"{metric} has no bound: give max, min or both")
        if isinstance(bounds, dict):
            read += _bounds(metric, bounds, here, findings)
    return tuple(read)


def _unknown(benchmark: Benchmark, metric: str) -> str:
    name, dot, statistic = metric.partition(".")
    known = metric_names(benchmark)
    if name not in known:
        near = did_you_mean(name, known) or f" (known: {', '.join(known)})"
        return f"{benchmark.name} has no metric {name!r}{near}"
    if dot and statistic not in STATISTICS:
        near = did_you_mean(statistic, STATISTICS) or f" (known: {', '.join(STATISTICS)})"
        return f"unknown statistic {statistic!r}{near}"
    return ""


def _bounds(
    metric: str, bounds: dict[str, Any], path: KeyPath, findings: Findings
) -> list[Expectation]:
    for op in (op for op, limit in bounds.items() if limit is None):
        findings.at_value((*path, op), f"{op} is empty: give it a number or leave it out")
    numbers = {op: limit for op, limit in bounds.items() if type(limit) in (int, float)}
    if {"max", "min"} <= numbers.keys() and numbers["min"] > numbers["max"]:
        message = f"{metric}: min {numbers['min']:g} is above max {numbers['max']:g}"
        findings.at_value(path, message)
    read = [Expectation(metric, "max", float(numbers["max"]))] if "max" in numbers else []
    return read + ([Expectation(metric, "min", float(numbers["min"]))] if "min" in numbers else [])
