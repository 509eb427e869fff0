"""Defaults of a suite: the values that its cases inherit from ``defaults:``.

A case inherits each value that it does not set. ``params`` and ``expect`` merge by key, every other
value is inherited whole. A parameter or metric that the case's benchmark lacks is not inherited.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from spbench.errors import did_you_mean
from spbench.suites.expectations import describe_unknown_metric, list_metric_names
from spbench.suites.file_errors import FileErrors
from spbench.suites.model import CaseDefaults, CaseEntry
from spbench.suites.parameters import ParameterReader
from spbench.suites.yaml_nodes import Document, Mark, Node
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.benchmark import Benchmark

_MERGED_KEYS = ("params", "expect")


def select_inherited(defaults: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a case inherits, by the keys of a case.

    Args:
        defaults: The data of ``defaults:``, which may be invalid.
        entry: The data of the case without inherited values, which may be invalid.
    """
    swept_keys = [*_get_mapping(entry, "matrix"), *_get_mapping(entry, "zip")]
    inherited: dict[str, Any] = {}
    for key in CaseDefaults.model_fields:
        if not isinstance(defaults, Mapping) or key not in defaults or key in _MERGED_KEYS:
            continue
        # A case that sweeps np has its numbers of ranks already.
        sweeps_ranks = key in ("np", "scale") and "np" in swept_keys
        if key not in entry and not sweeps_ranks:
            inherited[key] = defaults[key]
    benchmark = _find_benchmark(entry)
    if benchmark is None:
        return inherited
    params = _select_params(benchmark, _get_mapping(defaults, "params"), entry, swept_keys)
    if params:
        inherited["params"] = params
    expect = _select_expectations(benchmark, _get_mapping(defaults, "expect"), entry, params)
    if expect:
        inherited["expect"] = expect
    return inherited


def apply_defaults(data: dict[str, Any], errors: FileErrors) -> None:
    """Add the inherited values to the entries of ``cases:`` in the data of a suite.

    Errors in inherited values get the position of the default. Parameters and metrics that no case
    has are added to ``errors``.
    """
    defaults = data.get("defaults")
    cases = data.get("cases")
    if not isinstance(defaults, dict) or not isinstance(cases, list):
        return
    entries = [(index, entry) for index, entry in enumerate(cases) if isinstance(entry, dict)]
    for index, entry in entries:
        for key, value in copy.deepcopy(select_inherited(defaults, entry)).items():
            if key not in _MERGED_KEYS:
                entry[key] = value
                errors.record_inherited(("cases", index, key), ("defaults", key))
                continue
            # The case's own values come first, so that they keep their order in messages.
            entry[key] = entry.get(key, {}) | value
            for name in value:
                errors.record_inherited(("cases", index, key, name), ("defaults", key, name))
    _report_unknown(defaults, [entry for _, entry in entries], errors)


def _select_params(
    benchmark: Benchmark,
    defaults: Mapping[str, Any],
    entry: Mapping[str, Any],
    swept_keys: Sequence[str],
) -> dict[str, Any]:
    if not isinstance(entry.get("params", {}), dict):
        return {}
    own_params = [
        benchmark.find_param(key) for key in (*_get_mapping(entry, "params"), *swept_keys)
    ]
    return {
        key: value
        for key, value in defaults.items()
        if (param := benchmark.find_param(key)) and param not in own_params
    }


def _select_expectations(
    benchmark: Benchmark,
    defaults: Mapping[str, Any],
    entry: Mapping[str, Any],
    inherited_params: Mapping[str, Any],
) -> dict[str, Any]:
    entry_bounds = entry.get("expect", {})
    if not defaults or not isinstance(entry_bounds, dict):
        return {}
    names = _list_entry_metrics(benchmark, entry, inherited_params)
    return {
        key: bounds
        for key, bounds in defaults.items()
        if key not in entry_bounds
        and not (names and describe_unknown_metric(benchmark, names, key))
    }


def _list_entry_metrics(
    benchmark: Benchmark, entry: Mapping[str, Any], inherited_params: Mapping[str, Any]
) -> list[str]:
    """Return the names of the metrics of an entry; none if its parameters are invalid."""
    if not benchmark.has_chosen_metrics:
        return list_metric_names(benchmark)
    # The loader reads the parameters again, and reports their errors.
    unreported = FileErrors("", Document(Node(Mark(1, 1), None)))
    complete_entry = {**entry, "params": {**_get_mapping(entry, "params"), **inherited_params}}
    reader = ParameterReader(benchmark, complete_entry, ("cases", 0), unreported)
    params = reader.read_fixed() | reader.read_sweep().first_values
    with suppress(ExceptionGroup):
        return [] if unreported.count else list_metric_names(benchmark, params)
    return []


def _report_unknown(
    defaults: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], errors: FileErrors
) -> None:
    """Report the parameters and metrics that no case has, if each benchmark is known.

    Args:
        defaults: The data of ``defaults:``.
        entries: The data of the cases, with inherited values.
        errors: Collects the errors.
    """
    benchmarks = [benchmark for entry in entries if (benchmark := _find_benchmark(entry))]
    if not benchmarks or len(benchmarks) < len(entries):
        return
    for key in _get_mapping(defaults, "params"):
        if not any(benchmark.find_param(key) for benchmark in benchmarks):
            errors.add_at_key(("defaults", "params", key), _describe_param(key, benchmarks))
    expected_metrics = {key for entry in entries for key in _get_mapping(entry, "expect")}
    for key in _get_mapping(defaults, "expect"):
        if key not in expected_metrics:
            errors.add_at_key(("defaults", "expect", key), _describe_metric(key, benchmarks))


def _describe_param(key: str, benchmarks: Sequence[Benchmark]) -> str:
    if key in CaseEntry.model_fields:
        return f"{key!r} is a key of the case, not a parameter: move it out of params"
    names = dict.fromkeys(param.name for benchmark in benchmarks for param in benchmark.params)
    names |= dict.fromkeys(alias for benchmark in benchmarks for alias in benchmark.aliases)
    return f"no case has a parameter {key!r}{did_you_mean(key, names)}"


def _describe_metric(key: str, benchmarks: Sequence[Benchmark]) -> str:
    names = [name for benchmark in benchmarks for name in list_metric_names(benchmark)]
    metric = key.partition(".")[0]
    if metric in names:
        return describe_unknown_metric(benchmarks[0], names, key)
    return f"no case has a metric {metric!r}{did_you_mean(metric, dict.fromkeys(names))}"


def _find_benchmark(entry: Mapping[str, Any]) -> Benchmark | None:
    name = entry.get("benchmark")
    return BENCHMARKS.get(name) if isinstance(name, str) else None


def _get_mapping(data: Any, key: str) -> Mapping[str, Any]:
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, Mapping) else {}
