"""Reads the ``expect:`` of a case entry: metrics, statistics and bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

from spbench.errors import did_you_mean
from spbench.suites.case import DERIVED_METRICS, STATISTICS, Expectation
from spbench.suites.expression import CaseFigure, ExpressionError, read_expression
from spbench.suites.findings import Findings
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark, Metric

_OPS: tuple[Literal["max", "min"], ...] = ("max", "min")


def metrics_of(benchmark: Benchmark, given: Mapping[str, Any] | None = None) -> tuple[Metric, ...]:
    """Return the metrics that an expectation on a benchmark can name: its own, then the report's.

    Each may be followed by one of `STATISTICS`, as ``time_ms.p95``. Of a benchmark whose parameters
    say which metrics there are, only ``given`` ones tell; None: those that it always has.

    Raises:
        ExceptionGroup: The parameters are wrong.
    """
    if given is None or not benchmark.names_metrics:
        return (*benchmark.metrics, *DERIVED_METRICS)
    return (*benchmark.metrics_of(benchmark.complete(given)), *DERIVED_METRICS)


def metric_names(benchmark: Benchmark, given: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names of `metrics_of`."""
    return [metric.name for metric in metrics_of(benchmark, given)]


def read_expectations(
    benchmark: Benchmark,
    params: Mapping[str, Any],
    given: Any,
    path: KeyPath,
    findings: Findings,
) -> tuple[Expectation, ...]:
    """Return the expectations at ``path``, telling ``findings`` of those that cannot be judged.

    Wrong parameters are told elsewhere: the metrics that they would make are not known then.
    """
    known: list[str] | None = None
    with suppress(ExceptionGroup):
        known = metric_names(benchmark, params)
    read: list[Expectation] = []
    for metric, bounds in given.items() if isinstance(given, dict) else ():
        here = (*path, metric)
        if known is not None and (problem := unknown_figure(benchmark, known, metric)):
            findings.at_key(here, problem)
        if bounds == {}:
            findings.at_value(here, f"{metric} has no bound: give max, min or both")
        if isinstance(bounds, dict):
            read += _bounds(metric, bounds, here, findings)
    return tuple(read)


def unknown_figure(benchmark: Benchmark, known: Iterable[str], metric: str) -> str:
    """Return why a benchmark has no such ``metric.statistic``; an empty text where it has it."""
    name, dot, statistic = metric.partition(".")
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
    limits = {
        op: _limit(op, bounds[op], path, findings) for op in _OPS if bounds.get(op) is not None
    }
    read = [_expectation(metric, op, limit) for op, limit in limits.items() if limit is not None]
    numbers = {item.op: item.limit for item in read if item.limit is not None}
    if {"max", "min"} <= numbers.keys() and numbers["min"] > numbers["max"]:
        message = f"{metric}: min {numbers['min']:g} is above max {numbers['max']:g}"
        findings.at_value(path, message)
    return read


def _limit(op: str, given: Any, path: KeyPath, findings: Findings) -> float | str | None:
    """Return a number, the text of an expression of cases' figures, or None where it is neither."""
    if not isinstance(given, str):
        return float(given) if type(given) in (int, float) else None
    try:
        expression = read_expression(given)
        return given if expression.figures else expression.value(_no_figure)
    except ExpressionError as error:
        findings.in_value((*path, op), error.at, f"{op} is no limit: {error}")
        return None


def _no_figure(figure: CaseFigure) -> float:
    raise AssertionError(figure)


def _expectation(metric: str, op: Literal["max", "min"], limit: float | str) -> Expectation:
    if isinstance(limit, str):
        return Expectation(metric, op, None, limit)
    return Expectation(metric, op, limit)
