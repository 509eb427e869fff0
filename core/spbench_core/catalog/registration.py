"""Registration of benchmarks from the family folders and from plug-ins."""

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
    Metric,
    ParamError,
    Ranks,
)
from spbench_core.catalog.parameters import Param, ParamKind
from spbench_core.events.run_events import Better
from spbench_core.plugins import (
    PluginError,
    describe_error,
    guard_function,
    load_plugin_objects,
    report_left_out,
)

ENTRY_POINT_GROUP = "spbench.benchmarks"
ENTRIES_ATTRIBUTE = "BENCHMARKS"
ENTRY_MODULE = "entry"
"""The module of a family with its entries and its ``POSITION`` among the families."""

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
"""The functions of an entry, each with the type that it returns."""

EntriesByName = dict[str, Benchmark]
"""Entries by their names."""


class RegistrationError(TypeError):
    """An invalid entry of spbench itself."""


def list_families() -> list[str]:
    """Return the names of spbench's own families, in the order of lists."""
    return sorted(_find_folder_by_family(), key=_read_position)


def has_family(name: str) -> bool:
    """Return whether spbench has a family of that name."""
    return name in _find_folder_by_family()


def load_family_modules(name: str) -> list[ModuleType]:
    """Import the modules of one name in all families, in the order of lists."""
    folder_by_family = _find_folder_by_family()
    return [
        import_module(f"{FAMILIES}.{family}.{name}")
        for family in list_families()
        if (folder_by_family[family] / f"{name}.py").is_file()
    ]


@cache
def _find_folder_by_family() -> dict[str, Path]:
    """Return the folders of `FAMILIES` that have an entry module, by name."""
    package_spec = find_spec(FAMILIES)
    assert package_spec is not None, "one distribution has all packages"
    package_folders = package_spec.submodule_search_locations or []
    entry_paths = [
        path for root in package_folders for path in Path(root).glob(f"*/{ENTRY_MODULE}.py")
    ]
    return {path.parent.name: path.parent for path in entry_paths}


def _read_position(family: str) -> tuple[int, str]:
    return _read_attribute(family, "POSITION"), family


def _read_attribute(family: str, name: str) -> Any:
    """Return an attribute of a family's entry module.

    Raises:
        RegistrationError: The module does not define it.
    """
    module = f"{FAMILIES}.{family}.{ENTRY_MODULE}"
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        message = f"{module} does not define {name}, which every family requires"
        raise RegistrationError(message) from None


def load_family_entries(family: str) -> EntriesByName:
    """Return the entries of a family of spbench, without importing others.

    Raises:
        RegistrationError: An entry is invalid, or the module does not define ``BENCHMARKS``.
    """
    return select_valid_entries(_read_attribute(family, ENTRIES_ATTRIBUTE), {})


def load_plugin_entries(built_in: Mapping[str, Benchmark]) -> EntriesByName:
    """Return the entries of plug-ins.

    Args:
        built_in: The entries of spbench itself; a plug-in cannot use their names.
    """
    table: EntriesByName = {}
    for plugin_object in load_plugin_objects(ENTRY_POINT_GROUP, ENTRIES_ATTRIBUTE):
        if isinstance(plugin_object.object, (tuple, list)):
            table |= select_valid_entries(
                plugin_object.object, {**built_in, **table}, plugin_object.plugin
            )
        else:
            type_name = type(plugin_object.object).__name__
            report_left_out(
                plugin_object.plugin,
                f"invalid {ENTRIES_ATTRIBUTE} (expected a tuple, got {type_name})",
            )
    return table


def select_valid_entries(
    entries: Iterable[Any], registered: Mapping[str, Benchmark], plugin: str = ""
) -> EntriesByName:
    """Return the valid entries by name.

    Each invalid entry of a plug-in is left out, with a warning that names the plug-in.

    Args:
        entries: The entries, in the order of lists.
        registered: The entries so far; their names cannot be used again.
        plugin: The distribution of the entries, with its version; "" for spbench.

    Raises:
        RegistrationError: An entry of spbench itself is invalid.
    """
    table: EntriesByName = {}
    for entry in entries:
        problem = _find_registration_problem(entry, {**registered, **table}, plugin)
        if problem is None:
            table[entry.name] = _guard_entry(entry, plugin) if plugin else entry
        elif plugin:
            report_left_out(plugin, problem)
        else:
            raise RegistrationError(problem)
    return table


def _find_registration_problem(
    entry: Any, registered: Mapping[str, Benchmark], plugin: str
) -> str | None:
    """Return why an entry cannot be registered; None if it can."""
    if not isinstance(entry, Benchmark):
        return (
            f"invalid entry in {ENTRIES_ATTRIBUTE} (expected Benchmark, got {type(entry).__name__})"
        )
    name = entry.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"invalid benchmark name {name!r} (expected family.kind in lower case)"
    if name in registered:
        owner = registered[name].plugin or "spbench itself"
        return f"benchmark name {name!r} is used by {owner}"
    return next(_find_defects(entry, plugin), None)


def _find_defects(entry: Benchmark, plugin: str) -> Iterator[str]:
    """Yield the defects of an entry, each as a message."""
    name = entry.name
    if plugin and not entry.worker:
        yield f"benchmark {name}: worker is missing (expected the module that runs it)"
    if TIME_MS.name not in [getattr(metric, "name", None) for metric in entry.metrics]:
        yield f"benchmark {name}: metric {TIME_MS.name} is missing, which every benchmark requires"
    if not entry.checks or not entry.faults:
        yield f"benchmark {name}: needs a check, and a fault that makes it fail"
    try:
        _check_metrics_and_params(entry, defaults=bool(plugin))
    except Exception as error:
        yield f"benchmark {name}: invalid metric or parameter: {describe_error(error)}"


def _check_metrics_and_params(entry: Benchmark, *, defaults: bool) -> None:
    """Check metrics and parameters of an entry like suites and views use them.

    Args:
        entry: The entry.
        defaults: Whether to also make schemas and read defaults. It is not needed for entries of
            spbench itself, which tests cover.

    Raises:
        Exception: Any error of the metrics and parameters.
    """
    for metric in entry.metrics:
        if not isinstance(metric, Metric) or metric.better not in get_args(Better):
            raise TypeError(f"expected a Metric, got {metric!r}")
    for param in entry.params:
        if not isinstance(param, Param) or param.kind not in get_args(ParamKind):
            raise TypeError(f"expected a Param, got {param!r}")
        if not defaults:
            continue
        param.json_schema()
        if param.default is not None:
            param.read(param.default)


def _guard_entry(entry: Benchmark, plugin: str) -> Benchmark:
    """Wrap an entry of a plug-in so that errors of its functions name the plug-in."""
    guarded_by_name: dict[str, Any] = {}
    default_by_name = {field.name: field.default for field in fields(Benchmark)}
    for name, return_type in _FUNCTIONS.items():
        if getattr(entry, name) is default_by_name[name]:
            continue
        make_error: Callable[[str], Exception]
        make_error = _make_param_error if name == "resolve" else PluginError
        title = f"{name} of {entry.name}"
        function = getattr(entry, name)
        unchanged_errors = (ParamError,)
        guarded_by_name[name] = guard_function(
            function, plugin, title, make_error, unchanged_errors, return_type
        )
    return replace(entry, plugin=plugin, **guarded_by_name)


def _make_param_error(message: str) -> ParamError:
    return ParamError(None, message)
