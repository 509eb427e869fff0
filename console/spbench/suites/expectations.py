"""Reads the ``expect:`` of a case entry: metrics, statistics, bounds and references."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

from spbench.errors import did_you_mean
from spbench.suites.case import DERIVED_METRICS, STATISTICS, Expectation, PerformanceReference
from spbench.suites.expression import CaseMetric, ExpressionError, parse_expression
from spbench.suites.findings import Findings
from spbench.suites.systems import derive_bounds
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark, Metric

_OPS: tuple[Literal["max", "min"], ...] = ("max", "min")
_TOLERANCES = ("lower", "upper")


def list_metrics(
    benchmark: Benchmark, given: Mapping[str, Any] | None = None
) -> tuple[Metric, ...]:
    """Return the metrics that an expectation on a benchmark can name: its own, then the report's.

    Each may be followed by one of `STATISTICS`, as ``time_ms.p95``. Of a benchmark whose parameters
    say which metrics there are, only ``given`` ones tell; None: those that it always has.

    Raises:
        ExceptionGroup: The parameters are wrong.
    """
    if given is None or not benchmark.has_chosen_metrics:
        return (*benchmark.metrics, *DERIVED_METRICS)
    return (*benchmark.list_metrics(benchmark.complete(given)), *DERIVED_METRICS)


def list_metric_names(benchmark: Benchmark, given: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names of `metrics_of`."""
    return [metric.name for metric in list_metrics(benchmark, given)]


def parse_expectations(
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
        known = list_metric_names(benchmark, params)
    read: list[Expectation] = []
    for metric, bounds in given.items() if isinstance(given, dict) else ():
        here = (*path, metric)
        if known is not None and (problem := describe_unknown_metric(benchmark, known, metric)):
            findings.add_at_key(here, problem)
        if bounds == {}:
            findings.add_at_value(
                here, f"{metric} has no bound: give max, min, reference or systems"
            )
        if isinstance(bounds, dict):
            read += _read_entry(metric, bounds, here, findings)
    return tuple(read)


def describe_unknown_metric(benchmark: Benchmark, known: Iterable[str], metric: str) -> str:
    """Return why a benchmark has no such ``metric.statistic``; an empty text where it has it."""
    name, dot, statistic = metric.partition(".")
    if name not in known:
        near = did_you_mean(name, known) or f" (known: {', '.join(known)})"
        return f"{benchmark.name} has no metric {name!r}{near}"
    if dot and statistic not in STATISTICS:
        near = did_you_mean(statistic, STATISTICS) or f" (known: {', '.join(STATISTICS)})"
        return f"unknown statistic {statistic!r}{near}"
    return ""


def _read_entry(
    metric: str, entry: dict[str, Any], path: KeyPath, findings: Findings
) -> list[Expectation]:
    """Return the expectations of one metric: from bounds, a reference, or one for each system."""
    if "systems" in entry:
        for key in _keys_in((*_OPS, "reference", *_TOLERANCES), entry):
            message = f"{metric}: systems has a reference for each system; leave out {key}"
            findings.add_at_key((*path, key), message)
        systems = _read_systems(entry["systems"], (*path, "systems"), findings)
        op: Literal["max", "min"] = (
            "min" if all(reference.upper is None for reference in systems.values()) else "max"
        )
        return [Expectation(metric, op, None, systems=systems)] if systems else []
    if "reference" in entry:
        for key in _keys_in(_OPS, entry):
            message = f"{metric}: {key} follows from the reference; leave out one of the two"
            findings.add_at_key((*path, key), message)
        reference = _read_reference(entry, path, findings)
        return derive_bounds(metric, reference) if reference else []
    # A misspelt "reference" is reported with the shape of the file.
    known = entry.keys() <= {*_OPS, *_TOLERANCES}
    for key in _keys_in(_TOLERANCES, entry) if known else ():
        findings.add_at_key((*path, key), f"{key} is a share of a reference: add the key reference")
    return _bounds(metric, entry, path, findings)


def _keys_in(keys: Iterable[str], entry: Mapping[str, Any]) -> list[str]:
    return [key for key in keys if key in entry]


def _read_systems(data: Any, path: KeyPath, findings: Findings) -> dict[str, PerformanceReference]:
    entries = data if isinstance(data, dict) else {}
    systems: dict[str, PerformanceReference] = {}
    for name, entry in entries.items():
        if isinstance(entry, dict) and "reference" in entry:
            reference = _read_reference(entry, (*path, name), findings, str(name))
            systems |= {str(name): reference} if reference else {}
    return systems


def _read_reference(
    entry: dict[str, Any], path: KeyPath, findings: Findings, system: str | None = None
) -> PerformanceReference | None:
    """Return a reference; None if it has errors, of which some are those of the file's shape."""
    for key in ("reference", *_TOLERANCES):
        if key in entry and entry[key] is None:
            findings.add_at_value((*path, key), f"{key} is empty: give it a number or leave it out")
    if entry.keys() == {"reference"}:
        message = "reference has no tolerance: give lower, upper or both"
        findings.add_at_key((*path, "reference"), message)
    value = _number(entry["reference"])
    lower, upper = (_number(entry.get(key)) for key in _TOLERANCES)
    if value is None or value <= 0 or (lower is None and upper is None):
        return None
    return PerformanceReference(value, lower, upper, system)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _bounds(
    metric: str, bounds: dict[str, Any], path: KeyPath, findings: Findings
) -> list[Expectation]:
    for op in (op for op, limit in bounds.items() if limit is None):
        findings.add_at_value((*path, op), f"{op} is empty: give it a number or leave it out")
    limits = {
        op: _limit(op, bounds[op], path, findings) for op in _OPS if bounds.get(op) is not None
    }
    read = [_expectation(metric, op, limit) for op, limit in limits.items() if limit is not None]
    numbers = {item.op: item.limit for item in read if item.limit is not None}
    if {"max", "min"} <= numbers.keys() and numbers["min"] > numbers["max"]:
        message = f"{metric}: min {numbers['min']:g} is above max {numbers['max']:g}"
        findings.add_at_value(path, message)
    return read


def _limit(op: str, given: Any, path: KeyPath, findings: Findings) -> float | str | None:
    """Return a number, the text of an expression of cases' figures, or None where it is neither."""
    if not isinstance(given, str):
        return _number(given)
    try:
        expression = parse_expression(given)
        return given if expression.metrics else expression.evaluate(_no_figure)
    except ExpressionError as error:
        findings.add_in_text((*path, op), error.position, f"{op} is no limit: {error}")
        return None


def _no_figure(figure: CaseMetric) -> float:
    raise AssertionError(figure)


def _expectation(metric: str, op: Literal["max", "min"], limit: float | str) -> Expectation:
    if isinstance(limit, str):
        return Expectation(metric, op, None, limit)
    return Expectation(metric, op, limit)
