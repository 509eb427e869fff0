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
_offers: dict[str, tuple[Offer, ...]] = {}
_warnings: list[str] = []
_listeners: list[Callable[[str], None]] = []


class PluginError(RuntimeError):
    """An error of a plug-in, with a message that names its distribution."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An object that a plug-in offers, with the name of its entry point.

    ``plugin`` is the distribution of the plug-in, with its version.
    """

    name: str
    plugin: str
    value: Any


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


def leave_out(plugin: str, reason: str) -> None:
    """Record and report a plug-in, or its object, as left out; once per reason."""
    warning = f"plug-in {plugin}: {reason}"
    with _lock:
        if warning in _warnings:
            return
        _warnings.append(warning)
        listeners = tuple(_listeners)
    for report in listeners:
        report(warning)


def load_offers(group: str, attribute: str) -> tuple[Offer, ...]:
    """Return the offers of a group of entry points, sorted by name.

    The modules are imported once. A plug-in that calls this while it is imported gets no offers.

    Args:
        group: The group, such as ``spbench.reports``.
        attribute: The name of the object in each module.
    """
    with _lock:
        if group not in _offers:
            _offers[group] = ()
            _offers[group] = tuple(_load_group(group, attribute))
        return _offers[group]


def load_named_offers(
    group: str,
    attribute: str,
    built_in: Collection[str],
    find_problem: Callable[[Offer], str | None],
) -> dict[str, Offer]:
    """Return the valid offers of a group by the names of their entry points.

    Args:
        group: The group.
        attribute: The name of the object in each module.
        built_in: Names that spbench uses itself.
        find_problem: Returns why an offer is invalid, or None.
    """
    offers: dict[str, Offer] = {}
    for offer in load_offers(group, attribute):
        if offer.name in built_in:
            leave_out(offer.plugin, f"name {offer.name!r} of {group} is used by spbench itself")
        elif offer.name in offers:
            owner = offers[offer.name].plugin
            leave_out(offer.plugin, f"name {offer.name!r} of {group} is used by {owner}")
        elif problem := find_problem(offer):
            leave_out(offer.plugin, problem)
        else:
            offers[offer.name] = offer
    return offers


def guard_function(
    function: Callable[..., Any],
    plugin: str,
    title: str,
    make_error: Callable[[str], Exception],
    passes: tuple[type[Exception], ...],
    returns: type | None = None,
) -> Callable[..., Any]:
    """Return a function of a plug-in, wrapped so that its errors name the plug-in.

    Args:
        function: The function.
        plugin: The distribution, with its version.
        title: The name of the function in messages, such as ``resolve of example.sum``.
        make_error: Makes an error from a message.
        passes: Errors that are raised unchanged.
        returns: The type that it has to return; None: any.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            returned = function(*args, **kwargs)
        except passes:
            raise
        except Exception as error:
            message = f"plug-in {plugin}: {title} raised {describe_error(error)}"
            raise make_error(message) from error
        if returns is not None and not isinstance(returned, returns):
            raise make_error(
                f"plug-in {plugin}: {title} returned the wrong type "
                f"(expected {returns.__name__}, got {type(returned).__name__})"
            )
        return returned

    return call


def describe_error(error: BaseException) -> str:
    """Return the class and the shortened text of an exception on one line."""
    text = " ".join(str(error).split())[:_MAX_ERROR_LENGTH]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _load_group(group: str, attribute: str) -> Iterator[Offer]:
    # Imported here because it is slow, and most commands load no plug-in.
    from importlib.metadata import entry_points

    for entry_point in sorted(
        entry_points(group=group), key=lambda entry_point: (entry_point.name, entry_point.value)
    ):
        plugin = _name_distribution(entry_point)
        try:
            yield Offer(entry_point.name, plugin, _load_object(entry_point, attribute))
        except PluginError as error:
            leave_out(plugin, str(error))


def _name_distribution(entry_point: EntryPoint) -> str:
    return (
        f"{entry_point.dist.name} {entry_point.dist.version}"
        if entry_point.dist
        else entry_point.value
    )


def _load_object(entry_point: EntryPoint, attribute: str) -> Any:
    """Return the object that the module of an entry point offers.

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
