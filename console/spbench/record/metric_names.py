"""Names of metrics for people, and metrics of a separate loop."""

from __future__ import annotations

from functools import cache

from spbench.record.case_state import CaseState
from spbench.suites.case import DERIVED_METRICS
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import TIME_MS, Metric, describe_iteration

OTHER = "other"
"""The name of unaccounted time if it has no other name."""
SEPARATELY = "measured separately"
"""The mark of a metric that another loop than that of ``time_ms`` measures."""


def format_metric_name(name: str, unit: str) -> str:
    """Return a metric's name for people without its unit: ``time`` for ``time_ms``."""
    suffix = "_" + unit.lower().replace("/", "_")
    return _collect_titles("title").get(name) or name.removesuffix(suffix).replace("_", " ")


def format_folded_name(name: str, unit: str) -> str:
    """Return the name of a metric's value over all ranks: ``lowest bandwidth``."""
    return _collect_titles("folded_title").get(name) or format_metric_name(name, unit)


def format_figure_name(metric: str, unit: str) -> str:
    """Return the name of a metric's statistic: ``time p95`` for ``time_ms.p95``.

    Without a unit, as for a metric that was not measured, the key is returned.
    """
    if not unit:
        return metric
    name, _, statistic = metric.partition(".")
    return " ".join(filter(None, (format_folded_name(name, unit), statistic)))


def find_metric_help(benchmark: str, name: str) -> str:
    """Return the description of a metric; empty if the catalog lacks it."""
    metric = _find_metric(benchmark, name)
    return metric.help if metric is not None else ""


def find_iteration_name(benchmark: str) -> str:
    """Return the name of one iteration, ``one barrier``; empty if unknown."""
    metric = _find_metric(benchmark, TIME_MS.name)
    return describe_iteration(metric) if metric is not None else ""


def find_remainder_name(benchmark: str, name: str) -> str:
    """Return the name of a metric's unaccounted time, or ``other``."""
    metric = _find_metric(benchmark, name)
    return (metric.remainder if metric is not None else "") or OTHER


@cache
def _find_metric(benchmark: str, name: str) -> Metric | None:
    entry = BENCHMARKS.get(benchmark)
    metrics = (*entry.metrics, *DERIVED_METRICS) if entry is not None else ()
    return next((metric for metric in metrics if metric.name == name), None)


@cache
def list_separate_metrics(benchmark: str) -> frozenset[str]:
    """Return the names of a benchmark's metrics that are measured in a separate loop.

    The installed catalog decides, because events lack this. A benchmark that is not installed has
    none.
    """
    entry = BENCHMARKS.get(benchmark)
    metrics = entry.metrics if entry is not None else ()
    return frozenset(metric.name for metric in metrics if metric.separate)


def describe_separation(benchmark: str, name: str) -> str:
    """Return ``measured separately`` for such a metric; empty for others."""
    return SEPARATELY if name in list_separate_metrics(benchmark) else ""


def name_separate_metrics(case: CaseState) -> list[str]:
    """Return the names for people of metrics that a case measured in separate loops."""
    separate = list_separate_metrics(case.identity.benchmark)
    measured = (case.measured.samples.keys() | case.measured.repeat_values.keys()) & separate
    infos = (info for info in case.identity.metrics.values() if info.name in measured)
    return [format_metric_name(info.name, info.unit) for info in infos]


@cache
def _collect_titles(field: str) -> dict[str, str]:
    """Return the titles in a field of the catalog's metrics, by the metric's name."""
    metrics = (metric for entry in BENCHMARKS.values() for metric in entry.metrics)
    return {metric.name: getattr(metric, field) for metric in metrics if getattr(metric, field)}
