"""Plug-ins: benchmarks, launchers and formats of other distributions.

Entry points name the modules. Each module defines ``SPBENCH_PLUGIN_API``, the version of the
interface that it was made for, and the object that the group of its entry point requires. An
invalid plug-in is left out, with a warning that names its distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGIN_API = 1
"""The version of the interface; a change that breaks earlier plug-ins increases it."""
VERSION_ATTRIBUTE = "SPBENCH_PLUGIN_API"

_MAX_ERROR_LENGTH = 300
_lock = RLock()
_objects_by_group: dict[str, tuple[PluginObject, ...]] = {}
_warnings: list[str] = []
_listeners: list[Callable[[str], None]] = []


class PluginError(RuntimeError):
    """An error of a plug-in, with a message that names its distribution."""


@dataclass(frozen=True, slots=True)
class PluginObject:
    """The object of a plug-in, with the name of its entry point.

    ``plugin`` is the distribution of the plug-in, with its version.
    """

    name: str
    plugin: str
    object: Any


def set_warning_listener(report: Callable[[str], None]) -> None:
    """Have ``report`` called once with each warning about a plug-in.

    It replaces the previous listener. The first listener also gets all earlier warnings.
    """
    with _lock:
        unreported = () if _listeners else tuple(_warnings)
        _listeners[:] = [report]
    for warning in unreported:
        report(warning)


def list_warnings() -> tuple[str, ...]:
    """Return the warnings about plug-ins so far."""
    return tuple(_warnings)


def report_left_out(plugin: str, reason: str) -> None:
    """Record and report once that a plug-in, or its object, is left out for a reason."""
    warning = f"plug-in {plugin}: {reason}"
    with _lock:
        if warning in _warnings:
            return
        _warnings.append(warning)
        listeners = tuple(_listeners)
    for report in listeners:
        report(warning)


def load_plugin_objects(group: str, attribute: str) -> tuple[PluginObject, ...]:
    """Return the objects of a group of entry points, sorted by name.

    The modules are imported once. A plug-in that calls this while it is imported gets no objects.

    Args:
        group: The group, such as ``spbench.reports``.
        attribute: The name of the object in each module.
    """
    with _lock:
        if group not in _objects_by_group:
            _objects_by_group[group] = ()
            _objects_by_group[group] = tuple(_load_group(group, attribute))
        return _objects_by_group[group]


def load_named_plugin_objects(
    group: str,
    attribute: str,
    built_in: Collection[str],
    find_problem: Callable[[PluginObject], str | None],
) -> dict[str, PluginObject]:
    """Return the valid objects of a group by the names of their entry points.

    Args:
        group: The group.
        attribute: The name of the object in each module.
        built_in: Names that spbench uses itself.
        find_problem: Returns why an object is invalid, or None.
    """
    plugin_objects: dict[str, PluginObject] = {}
    for plugin_object in load_plugin_objects(group, attribute):
        if plugin_object.name in built_in:
            report_left_out(
                plugin_object.plugin,
                f"name {plugin_object.name!r} of {group} is used by spbench itself",
            )
        elif plugin_object.name in plugin_objects:
            owner = plugin_objects[plugin_object.name].plugin
            report_left_out(
                plugin_object.plugin, f"name {plugin_object.name!r} of {group} is used by {owner}"
            )
        elif problem := find_problem(plugin_object):
            report_left_out(plugin_object.plugin, problem)
        else:
            plugin_objects[plugin_object.name] = plugin_object
    return plugin_objects


def guard_function(
    function: Callable[..., Any],
    plugin: str,
    title: str,
    make_error: Callable[[str], Exception],
    unchanged_errors: tuple[type[Exception], ...],
    return_type: type | None = None,
) -> Callable[..., Any]:
    """Return a function of a plug-in, wrapped so that its errors name the plug-in.

    Args:
        function: The function.
        plugin: The distribution, with its version.
        title: The name of the function in messages, such as ``resolve of example.sum``.
        make_error: Makes an error from a message.
        unchanged_errors: Errors that are raised unchanged.
        return_type: The type that it has to return; None: any.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            returned = function(*args, **kwargs)
        except unchanged_errors:
            raise
        except Exception as error:
            message = f"plug-in {plugin}: {title} raised {describe_error(error)}"
            raise make_error(message) from error
        if return_type is not None and not isinstance(returned, return_type):
            raise make_error(
                f"plug-in {plugin}: {title} returned the wrong type "
                f"(expected {return_type.__name__}, got {type(returned).__name__})"
            )
        return returned

    return call


def describe_error(error: BaseException) -> str:
    """Return the class and the shortened text of an exception on one line."""
    text = " ".join(str(error).split())[:_MAX_ERROR_LENGTH]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _load_group(group: str, attribute: str) -> Iterator[PluginObject]:
    # Imported here because it is slow, and most commands load no plug-in.
    from importlib.metadata import entry_points

    for entry_point in sorted(
        entry_points(group=group), key=lambda entry_point: (entry_point.name, entry_point.value)
    ):
        plugin = _name_distribution(entry_point)
        try:
            yield PluginObject(entry_point.name, plugin, _load_object(entry_point, attribute))
        except PluginError as error:
            report_left_out(plugin, str(error))


def _name_distribution(entry_point: EntryPoint) -> str:
    return (
        f"{entry_point.dist.name} {entry_point.dist.version}"
        if entry_point.dist
        else entry_point.value
    )


def _load_object(entry_point: EntryPoint, attribute: str) -> Any:
    """Return the required object of an entry point's module.

    Raises:
        PluginError: The module cannot be imported, is for another version, or lacks the object.
    """
    try:
        module = import_module(entry_point.value)
    except (Exception, SystemExit) as error:
        raise PluginError(f"cannot import {entry_point.value}: {describe_error(error)}") from error
    version = getattr(module, VERSION_ATTRIBUTE, None)
    if version is None:
        raise PluginError(f"{entry_point.value} does not define {VERSION_ATTRIBUTE} = {PLUGIN_API}")
    if version != PLUGIN_API:
        raise PluginError(
            f"{entry_point.value} is for another plug-in API (expected {PLUGIN_API}, "
            f"got {version!r}); install a version of it for plug-in API {PLUGIN_API}"
        )
    if not hasattr(module, attribute):
        raise PluginError(
            f"{entry_point.value} does not define {attribute}, as {entry_point.group} requires"
        )
    return getattr(module, attribute)
