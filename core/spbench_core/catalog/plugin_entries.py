"""The entries of plug-ins in the catalog: those that are right, and errors that name them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Any, get_args

from spbench_core.catalog.benchmark import TIME_MS, Benchmark, Better, Metric, ParamError, Ranks
from spbench_core.catalog.parameters import Kind, Param
from spbench_core.plugins import PluginError, guarded, leave_out, offers, told

GROUP, ATTRIBUTE = "spbench.benchmarks", "BENCHMARKS"

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
_FUNCTIONS: dict[str, type] = {
    "resolve": dict,
    "ranks": Ranks,
    "points": list,
    "choose_checks": tuple,
    "choose_faults": tuple,
    "choose_metrics": tuple,
    "place": dict,
    "scaled": dict,
}
"""The functions of an entry, each with what it returns."""


def plugin_benchmarks(own: Collection[str]) -> list[Benchmark]:
    """Return the entries of plug-ins that are right; of the others a warning is kept."""
    found: dict[str, Benchmark] = {}
    for offer in offers(GROUP, ATTRIBUTE):
        if not isinstance(offer.value, (tuple, list)):
            leave_out(offer.plugin, f"its {ATTRIBUTE} is no tuple of entries of the catalog")
            continue
        for entry in offer.value:
            if why := _wrong(entry, own, found):
                leave_out(offer.plugin, why)
            else:
                found[entry.name] = _guarded(entry, offer.plugin)
    return list(found.values())


def _wrong(entry: Any, own: Collection[str], found: dict[str, Benchmark]) -> str | None:
    """Return what is wrong with a plug-in's entry; None: nothing."""
    if not isinstance(entry, Benchmark):
        return f"its {ATTRIBUTE} has a {type(entry).__name__} where a Benchmark belongs"
    name = entry.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"a benchmark cannot be called {name!r}: write it family.kind, in small letters"
    if name in own:
        return f"spbench has a benchmark {name} of its own"
    if name in found:
        return f"{found[name].plugin} has taken the name {name} of a benchmark"
    if not entry.worker:
        return f"benchmark {name} does not say which module runs it: give it worker"
    if TIME_MS.name not in [getattr(metric, "name", None) for metric in entry.metrics]:
        return f"benchmark {name} lacks the metric {TIME_MS.name}, which every benchmark has"
    if not entry.checks or not entry.faults:
        return f"benchmark {name} needs a check, and a fault that makes it fail"
    try:
        _read_parts(entry)
    except Exception as error:
        return f"benchmark {name} is malformed: {told(error)}"
    return None


def _read_parts(entry: Benchmark) -> None:
    """Go once over an entry's parts, as suites and views will.

    Raises:
        Exception: Any that these would raise.
    """
    for metric in entry.metrics:
        if not isinstance(metric, Metric) or metric.better not in get_args(Better):
            raise TypeError(f"{metric!r} is no Metric")
    for param in entry.params:
        if not isinstance(param, Param) or param.kind not in get_args(Kind):
            raise TypeError(f"{param!r} is no Param")
        param.json_schema()
        if param.default is not None:
            param.read(param.default)


def _guarded(entry: Benchmark, plugin: str) -> Benchmark:
    """Return a plug-in's entry with the name of the plug-in, which the errors of its code have."""
    functions: dict[str, Any] = {}
    own = {each.name: each.default for each in fields(Benchmark)}
    for name, returns in _FUNCTIONS.items():
        if getattr(entry, name) is own[name]:
            continue
        error: Callable[[str], Exception] = _wrong_params if name == "resolve" else PluginError
        what = f"{name} of {entry.name}"
        passes = (ParamError,)
        function = getattr(entry, name)
        functions[name] = guarded(function, plugin, what, error, passes, returns)
    return replace(entry, plugin=plugin, **functions)


def _wrong_params(sentence: str) -> ParamError:
    return ParamError(None, sentence)
