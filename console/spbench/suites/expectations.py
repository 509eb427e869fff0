"""Expectations of a case entry: bounds and references of metrics."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from spbench.errors import did_you_mean
from spbench.suites.case import DERIVED_METRICS, STATISTICS, Case, Expectation, PerformanceReference
from spbench.suites.expressions.expression import CaseMetric, ExpressionError, parse_expression
from spbench.suites.file_errors import FileErrors
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark, Metric

_OPS: tuple[Literal["max", "min"], ...] = ("max", "min")
_TOLERANCES = ("lower", "upper")


def list_metrics(
    benchmark: Benchmark, params: Mapping[str, Any] | None = None
) -> tuple[Metric, ...]:
    """Return the metrics that an expectation can name.

    Each may be followed by one of `STATISTICS`, such as ``time_ms.p95``.

    Args:
        benchmark: The benchmark.
        params: Its parameters, on which the metrics may depend. None: the metrics that it always
            has.

    Raises:
        ExceptionGroup: The parameters are invalid.
    """
    if params is None or not benchmark.has_chosen_metrics:
        return (*benchmark.metrics, *DERIVED_METRICS)
    return (*benchmark.list_metrics(benchmark.complete(params)), *DERIVED_METRICS)


def list_metric_names(benchmark: Benchmark, params: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names of `list_metrics`."""
    return [metric.name for metric in list_metrics(benchmark, params)]


def parse_expectations(
    benchmark: Benchmark,
    params: Mapping[str, Any],
    bounds_by_metric: Any,
    path: KeyPath,
    errors: FileErrors,
) -> tuple[Expectation, ...]:
    """Return the expectations in the data at ``path``, and add their errors.

    Names of metrics are not checked if the parameters are invalid, which is reported elsewhere.
    """
    metric_names: list[str] | None = None
    with suppress(ExceptionGroup):
        metric_names = list_metric_names(benchmark, params)
    expectations: list[Expectation] = []
    for metric, bounds in bounds_by_metric.items() if isinstance(bounds_by_metric, dict) else ():
        metric_path = (*path, metric)
        if metric_names is not None and (
            problem := describe_unknown_metric(benchmark, metric_names, metric)
        ):
            errors.add_at_key(metric_path, problem)
        if bounds == {}:
            message = f"{metric} has no bound: give max, min, reference or systems"
            errors.add_at_value(metric_path, message)
        if isinstance(bounds, dict):
            expectations += _parse_metric_bounds(metric, bounds, metric_path, errors)
    return tuple(expectations)


def describe_unknown_metric(benchmark: Benchmark, names: Iterable[str], metric: str) -> str:
    """Return an error for an unknown ``metric.statistic``; otherwise empty."""
    name, dot, statistic = metric.partition(".")
    if name not in names:
        hint = did_you_mean(name, names) or f" (known: {', '.join(names)})"
        return f"{benchmark.name} has no metric {name!r}{hint}"
    if dot and statistic not in STATISTICS:
        hint = did_you_mean(statistic, STATISTICS) or f" (known: {', '.join(STATISTICS)})"
        return f"unknown statistic {statistic!r}{hint}"
    return ""


def _parse_metric_bounds(
    metric: str, bounds: dict[str, Any], path: KeyPath, errors: FileErrors
) -> list[Expectation]:
    """Return the expectations of a metric from bounds, a reference, or one per system."""
    if "systems" in bounds:
        for key in _list_present((*_OPS, "reference", *_TOLERANCES), bounds):
            message = f"{metric}: systems has a reference for each system; leave out {key}"
            errors.add_at_key((*path, key), message)
        systems = _parse_systems(bounds["systems"], (*path, "systems"), errors)
        op: Literal["max", "min"] = (
            "min" if all(reference.upper is None for reference in systems.values()) else "max"
        )
        return [Expectation(metric, op, None, systems=systems)] if systems else []
    if "reference" in bounds:
        for key in _list_present(_OPS, bounds):
            message = f"{metric}: {key} follows from the reference; leave out one of the two"
            errors.add_at_key((*path, key), message)
        reference = _parse_reference(bounds, path, errors)
        return derive_bounds(metric, reference) if reference else []
    # A misspelt "reference" is reported with the shape of the file.
    if bounds.keys() <= {*_OPS, *_TOLERANCES}:
        for key in _list_present(_TOLERANCES, bounds):
            message = f"{key} is a share of a reference: add the key reference"
            errors.add_at_key((*path, key), message)
    return _parse_limits(metric, bounds, path, errors)


def _list_present(keys: Iterable[str], bounds: Mapping[str, Any]) -> list[str]:
    return [key for key in keys if key in bounds]


def _parse_systems(data: Any, path: KeyPath, errors: FileErrors) -> dict[str, PerformanceReference]:
    reference_data_by_system = data if isinstance(data, dict) else {}
    reference_by_system: dict[str, PerformanceReference] = {}
    for system, reference_data in reference_data_by_system.items():
        if isinstance(reference_data, dict) and "reference" in reference_data:
            reference = _parse_reference(reference_data, (*path, system), errors, str(system))
            reference_by_system |= {str(system): reference} if reference else {}
    return reference_by_system


def _parse_reference(
    reference_data: dict[str, Any], path: KeyPath, errors: FileErrors, system: str | None = None
) -> PerformanceReference | None:
    """Return a reference, or None if it has errors."""
    for key in ("reference", *_TOLERANCES):
        if key in reference_data and reference_data[key] is None:
            errors.add_at_value((*path, key), f"{key} is empty: give it a number or leave it out")
    if reference_data.keys() == {"reference"}:
        message = "reference has no tolerance: give lower, upper or both"
        errors.add_at_key((*path, "reference"), message)
    reference_value = _parse_number(reference_data["reference"])
    lower_share, upper_share = (_parse_number(reference_data.get(key)) for key in _TOLERANCES)
    if (
        reference_value is None
        or reference_value <= 0
        or (lower_share is None and upper_share is None)
    ):
        return None
    return PerformanceReference(reference_value, lower_share, upper_share, system)


def _parse_number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _parse_limits(
    metric: str, bounds: dict[str, Any], path: KeyPath, errors: FileErrors
) -> list[Expectation]:
    for op in (op for op, limit in bounds.items() if limit is None):
        errors.add_at_value((*path, op), f"{op} is empty: give it a number or leave it out")
    expectations = []
    for op in _OPS:
        if bounds.get(op) is None:
            continue
        limit = _parse_limit(op, bounds[op], path, errors)
        if limit is not None:
            expectations.append(_make_expectation(metric, op, limit))
    limit_by_op = {
        expectation.op: expectation.limit
        for expectation in expectations
        if expectation.limit is not None
    }
    if {"max", "min"} <= limit_by_op.keys() and limit_by_op["min"] > limit_by_op["max"]:
        message = f"{metric}: min {limit_by_op['min']:g} is above max {limit_by_op['max']:g}"
        errors.add_at_value(path, message)
    return expectations


def _parse_limit(op: str, value: Any, path: KeyPath, errors: FileErrors) -> float | str | None:
    """Return a number, the text of an expression, or None for an error."""
    if not isinstance(value, str):
        return _parse_number(value)
    try:
        expression = parse_expression(value)
        return value if expression.metrics else expression.evaluate(_reject_metric)
    except ExpressionError as error:
        errors.add_in_text((*path, op), error.position, f"{op} is no limit: {error}")
        return None


def _reject_metric(metric: CaseMetric) -> float:
    raise AssertionError(metric)


def _make_expectation(metric: str, op: Literal["max", "min"], limit: float | str) -> Expectation:
    if isinstance(limit, str):
        return Expectation(metric, op, None, limit)
    return Expectation(metric, op, limit)


def depends_on_system(cases: Iterable[Case]) -> bool:
    """Return whether an expectation of a case has a reference for each system."""
    return any(expectation.systems is not None for case in cases for expectation in case.expect)


def choose_references(cases: Sequence[Case], system: str) -> tuple[Case, ...]:
    """Return the cases with the bounds of one system.

    An expectation without a reference for the system is kept, with the reason why it is skipped.
    """
    return tuple(
        replace(case, expect=tuple(_choose_bounds(case.expect, system))) if case.expect else case
        for case in cases
    )


def _choose_bounds(expect: Iterable[Expectation], system: str) -> Iterator[Expectation]:
    for expectation in expect:
        if expectation.systems is None:
            yield expectation
        elif system in expectation.systems:
            yield from derive_bounds(expectation.metric, expectation.systems[system])
        else:
            system_names = ", ".join(expectation.systems)
            skipped = f"no reference for system {system} (suite has {system_names})"
            yield replace(expectation, systems=None, skipped=skipped)


def derive_bounds(metric: str, reference: PerformanceReference) -> list[Expectation]:
    """Return the bounds of a metric that follow from a reference: max, min, or both.

    A bound is exact in decimal digits: 0.7 with 10 % is 0.77, so that a result of 0.77 passes.
    """
    bounds = []
    if reference.upper is not None:
        maximum = _shift_by_share(reference.value, reference.upper)
        bounds.append(Expectation(metric, "max", maximum, reference=reference))
    if reference.lower is not None:
        minimum = _shift_by_share(reference.value, reference.lower)
        bounds.append(Expectation(metric, "min", minimum, reference=reference))
    return bounds


def _shift_by_share(value: float, share: float) -> float:
    bound = float(Decimal(repr(value)) * (1 + Decimal(repr(share))))
    return min(bound, sys.float_info.max)
