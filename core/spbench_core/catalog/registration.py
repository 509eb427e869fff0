"""Registration of benchmarks: spbench's own families, found by folder, and those of plug-ins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from spbench_core.catalog.benchmark import (
    FAMILIES,
    TIME_MS,
    Benchmark,
    Better,
    Metric,
    ParamError,
    Ranks,
)
from spbench_core.catalog.parameters import Kind, Param
from spbench_core.plugins import PluginError, guarded, leave_out, offers, told

GROUP, ATTRIBUTE = "spbench.benchmarks", "BENCHMARKS"
ENTRY = "entry"
"""The module of a family that has its entries, and its ``POSITION`` among the families."""

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

Table = dict[str, Benchmark]
"""Entries by their names."""


class RegistrationError(TypeError):
    """A malformed entry of spbench's own."""


def families() -> list[str]:
    """Return the names of spbench's own families, in the order of lists."""
    return sorted(_folders(), key=_position)


def has_family(name: str) -> bool:
    """Return whether spbench has a family of that name."""
    return name in _folders()


def family_modules(name: str) -> list[ModuleType]:
    """Return the modules of that name, one of each family that has it, in the order of lists."""
    folders = _folders()
    return [
        import_module(f"{FAMILIES}.{family}.{name}")
        for family in families()
        if (folders[family] / f"{name}.py").is_file()
    ]


@cache
def _folders() -> dict[str, Path]:
    """Return the folders of `FAMILIES` that have an entry module, by name."""
    spec = find_spec(FAMILIES)
    assert spec is not None, "one distribution has all packages"
    roots = spec.submodule_search_locations or []
    entries = [path for root in roots for path in Path(root).glob(f"*/{ENTRY}.py")]
    return {path.parent.name: path.parent for path in entries}


def _position(family: str) -> tuple[int, str]:
    return _attribute(family, "POSITION"), family


def _attribute(family: str, name: str) -> Any:
    """Return an attribute of a family's entry module.

    Raises:
        RegistrationError: It has none.
    """
    module = f"{FAMILIES}.{family}.{ENTRY}"
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        raise RegistrationError(f"{module} lacks {name}, which every family has") from None


def family_entries(family: str) -> Table:
    """Return the entries of one of spbench's own families; the others are not imported.

    Raises:
        RegistrationError: An entry is malformed, or the module lacks ``BENCHMARKS``.
    """
    return register(_attribute(family, ATTRIBUTE), {})


def plugin_entries(own: Mapping[str, Benchmark]) -> Table:
    """Return the entries of plug-ins.

    Args:
        own: Registered entries; their names are not available.
    """
    table: Table = {}
    for offer in offers(GROUP, ATTRIBUTE):
        if isinstance(offer.value, (tuple, list)):
            table |= register(offer.value, {**own, **table}, offer.plugin)
        else:
            leave_out(offer.plugin, f"its {ATTRIBUTE} is no tuple of entries of the catalog")
    return table


def register(entries: Iterable[Any], taken: Mapping[str, Benchmark], plugin: str = "") -> Table:
    """Return the entries that are well-formed, by name.

    Each malformed entry of a plug-in is left out, with a warning that names the plug-in.

    Args:
        entries: The entries, in the order of lists.
        taken: Registered entries; their names are not available.
        plugin: The distribution that the entries are from, with its version; "" for spbench.

    Raises:
        RegistrationError: An entry of spbench's own is malformed.
    """
    table: Table = {}
    for entry in entries:
        problem = _problem(entry, {**taken, **table}, plugin)
        if problem is None:
            table[entry.name] = _guarded(entry, plugin) if plugin else entry
        elif plugin:
            leave_out(plugin, problem)
        else:
            raise RegistrationError(problem)
    return table


def _problem(entry: Any, taken: Mapping[str, Benchmark], plugin: str) -> str | None:
    """Return why an entry cannot be registered; None if it can."""
    if not isinstance(entry, Benchmark):
        return f"its {ATTRIBUTE} has a {type(entry).__name__} where a Benchmark belongs"
    name = entry.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"a benchmark cannot be called {name!r}: write it family.kind, in small letters"
    if name in taken:
        owner = taken[name].plugin
        if not owner:
            return f"spbench has a benchmark {name} of its own"
        return f"{owner} has taken the name {name} of a benchmark"
    return next(_malformed(entry, plugin), None)


def _malformed(entry: Benchmark, plugin: str) -> Iterator[str]:
    """Yield what is malformed in an entry."""
    name = entry.name
    if plugin and not entry.worker:
        yield f"benchmark {name} does not say which module runs it: give it worker"
    if TIME_MS.name not in [getattr(metric, "name", None) for metric in entry.metrics]:
        yield f"benchmark {name} lacks the metric {TIME_MS.name}, which every benchmark has"
    if not entry.checks or not entry.faults:
        yield f"benchmark {name} needs a check, and a fault that makes it fail"
    try:
        _read_parts(entry, defaults=bool(plugin))
    except Exception as error:
        yield f"benchmark {name} is malformed: {told(error)}"


def _read_parts(entry: Benchmark, *, defaults: bool) -> None:
    """Read an entry's metrics and parameters once, as suites and views will.

    Args:
        entry: The entry.
        defaults: Whether schemas are made and defaults are read, too. Those of spbench's own
            entries are tested, and need not be read at each start.

    Raises:
        Exception: Any that these would raise.
    """
    for metric in entry.metrics:
        if not isinstance(metric, Metric) or metric.better not in get_args(Better):
            raise TypeError(f"{metric!r} is not a Metric")
    for param in entry.params:
        if not isinstance(param, Param) or param.kind not in get_args(Kind):
            raise TypeError(f"{param!r} is not a Param")
        if not defaults:
            continue
        param.json_schema()
        if param.default is not None:
            param.read(param.default)


def _guarded(entry: Benchmark, plugin: str) -> Benchmark:
    """Return a plug-in's entry with the name of the plug-in, which the errors of its code have."""
    functions: dict[str, Any] = {}
    defaults = {field.name: field.default for field in fields(Benchmark)}
    for name, returns in _FUNCTIONS.items():
        if getattr(entry, name) is defaults[name]:
            continue
        error: Callable[[str], Exception] = _wrong_params if name == "resolve" else PluginError
        what = f"{name} of {entry.name}"
        passes = (ParamError,)
        function = getattr(entry, name)
        functions[name] = guarded(function, plugin, what, error, passes, returns)
    return replace(entry, plugin=plugin, **functions)


def _wrong_params(sentence: str) -> ParamError:
    return ParamError(None, sentence)
