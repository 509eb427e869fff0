"""The names of metrics for people, and which metrics are measured in another loop than the time."""

from __future__ import annotations

from functools import cache

from spbench.record.case_state import CaseState
from spbench.suites.case import DERIVED_METRICS
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import TIME_MS, Metric, describe_iteration

OTHER = "other"
"""The name of the time that no part accounts for, if it is not known what takes it."""
SEPARATELY = "measured separately"
"""The mark of a metric of another loop than ``time_ms``: it is not a part of that time."""


def format_metric_name(name: str, unit: str) -> str:
    """Return a metric's name for people, ``time`` for ``time_ms``: its values have the unit."""
    suffix = "_" + unit.lower().replace("/", "_")
    return _titles("title").get(name) or name.removesuffix(suffix).replace("_", " ")


def format_folded_name(name: str, unit: str) -> str:
    """Return the name of a metric's value over all ranks, such as ``lowest bandwidth``."""
    return _titles("folded_title").get(name) or format_metric_name(name, unit)


def format_figure_name(metric: str, unit: str) -> str:
    """Return the name of a metric's statistic for people, ``time p95`` for ``time_ms.p95``.

    The unit of a metric that was not measured is unknown: without one, the key is returned.
    """
    if not unit:
        return metric
    name, _, statistic = metric.partition(".")
    return " ".join(filter(None, (format_folded_name(name, unit), statistic)))


def find_metric_help(benchmark: str, name: str) -> str:
    """Return the description of a metric; empty if the catalog lacks it."""
    metric = _metric(benchmark, name)
    return metric.help if metric is not None else ""


def find_iteration_name(benchmark: str) -> str:
    """Return one iteration of a benchmark in words, ``one barrier``; empty if unknown."""
    metric = _metric(benchmark, TIME_MS.name)
    return describe_iteration(metric) if metric is not None else ""


def find_remainder_name(benchmark: str, whole: str) -> str:
    """Return what takes the time of a metric that no part accounts for, or ``other``."""
    metric = _metric(benchmark, whole)
    return (metric.remainder if metric is not None else "") or OTHER


@cache
def _metric(benchmark: str, name: str) -> Metric | None:
    entry = BENCHMARKS.get(benchmark)
    metrics = (*entry.metrics, *DERIVED_METRICS) if entry is not None else ()
    return next((metric for metric in metrics if metric.name == name), None)


@cache
def separate_metrics(benchmark: str) -> frozenset[str]:
    """Return the names of a benchmark's metrics that are measured in a loop of their own.

    The catalog of this installation decides, since events do not have it: a benchmark that is not
    installed here has none.
    """
    entry = BENCHMARKS.get(benchmark)
    metrics = entry.metrics if entry is not None else ()
    return frozenset(metric.name for metric in metrics if metric.separate)


def describe_separation(benchmark: str, name: str) -> str:
    """Return ``measured separately`` for such a metric; nothing for others."""
    return SEPARATELY if name in separate_metrics(benchmark) else ""


def name_separate_metrics(case: CaseState) -> list[str]:
    """Return the names for people of what a case measured in other loops than its time."""
    separate = separate_metrics(case.identity.benchmark)
    measured = (case.measured.samples.keys() | case.measured.values.keys()) & separate
    infos = (info for info in case.identity.metrics.values() if info.name in measured)
    return [format_metric_name(info.name, info.unit) for info in infos]


@cache
def _titles(field: str) -> dict[str, str]:
    """Return the titles in a field of the catalog's metrics, by the metric's name."""
    metrics = (metric for entry in BENCHMARKS.values() for metric in entry.metrics)
    return {metric.name: getattr(metric, field) for metric in metrics if getattr(metric, field)}
