"""Plug-ins: modules of other distributions that add benchmarks, launchers and reports.

Entry points name them, each a module with ``SPBENCH_PLUGIN_API``, the version of the interface that
it was made for, and with what its group asks for. Of a plug-in that is wrong a sentence is kept,
which names its distribution, and it is left out.
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
"""The version of the interface: raised where plug-ins made for the one before would break."""
STATED = "SPBENCH_PLUGIN_API"

_MOST_LETTERS = 300
_lock = RLock()
_offers: dict[str, tuple[Offer, ...]] = {}
_warnings: list[str] = []
_listeners: list[Callable[[str], None]] = []


class PluginError(RuntimeError):
    """The error of a plug-in, in one sentence that names its distribution."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A thing that a plug-in offers: the name of its entry point, and the object.

    ``plugin`` is the distribution that it comes from, with its version.
    """

    name: str
    plugin: str
    value: Any


def listen(tell: Callable[[str], None]) -> None:
    """Have each warning about a plug-in told once, from now on by this function alone.

    Warnings that nobody has been told are told at once.
    """
    with _lock:
        untold = () if _listeners else tuple(_warnings)
        _listeners[:] = [tell]
    for sentence in untold:
        tell(sentence)


def warnings() -> tuple[str, ...]:
    """Return the sentences on plug-ins that were left out so far."""
    return tuple(_warnings)


def leave_out(plugin: str, why: str) -> None:
    """Keep the sentence on what of a plug-in is left out, and tell it; once for each."""
    sentence = f"plug-in {plugin}: {why}"
    with _lock:
        if sentence in _warnings:
            return
        _warnings.append(sentence)
        listeners = tuple(_listeners)
    for tell in listeners:
        tell(sentence)


def offers(group: str, attribute: str) -> tuple[Offer, ...]:
    """Return what the plug-ins of a group of entry points offer, in the order of their names.

    It looks for them once; a plug-in that asks while it is imported itself gets none.

    Args:
        group: The group, as ``spbench.reports``.
        attribute: The name of the object in each module.
    """
    with _lock:
        if group not in _offers:
            _offers[group] = ()
            _offers[group] = tuple(_loaded(group, attribute))
        return _offers[group]


def named_offers(
    group: str, attribute: str, own: Collection[str], wrong: Callable[[Offer], str | None]
) -> dict[str, Offer]:
    """Return the offers of a group by the names of their entry points.

    Args:
        group: The group.
        attribute: The name of the object in each module.
        own: Names that spbench has taken itself.
        wrong: Says what is wrong with an offer; None: nothing.
    """
    found: dict[str, Offer] = {}
    for offer in offers(group, attribute):
        if offer.name in own:
            leave_out(offer.plugin, f"spbench has a {offer.name} of its own ({group})")
        elif offer.name in found:
            other = found[offer.name].plugin
            leave_out(offer.plugin, f"{other} has taken the name {offer.name} ({group})")
        elif why := wrong(offer):
            leave_out(offer.plugin, why)
        else:
            found[offer.name] = offer
    return found


def guarded(
    function: Callable[..., Any],
    plugin: str,
    what: str,
    error: Callable[[str], Exception],
    passes: tuple[type[Exception], ...],
    returns: type | None = None,
) -> Callable[..., Any]:
    """Return a plug-in's function, whose defects are errors that name the plug-in.

    Args:
        function: The function.
        plugin: The distribution, with its version.
        what: The function in the sentence, as ``resolve of example.sum``.
        error: Makes the error of a sentence.
        passes: Errors that it may raise.
        returns: The type that it has to return; None: any.
    """

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            value = function(*given, **named)
        except passes:
            raise
        except Exception as defect:
            raise error(f"plug-in {plugin}: {what} raised {told(defect)}") from defect
        if returns is not None and not isinstance(value, returns):
            kind = type(value).__name__
            raise error(f"plug-in {plugin}: {what} returned a {kind}, not a {returns.__name__}")
        return value

    return call


def told(defect: BaseException) -> str:
    """Return an exception as a sentence has it: its class and the first of its text."""
    text = " ".join(str(defect).split())[:_MOST_LETTERS]
    return f"{type(defect).__name__}: {text}" if text else type(defect).__name__


def _loaded(group: str, attribute: str) -> Iterator[Offer]:
    # A command that asks for no plug-in need not wait for this import.
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        plugin = _distribution(point)
        try:
            yield Offer(point.name, plugin, _object(point, attribute))
        except PluginError as error:
            leave_out(plugin, str(error))


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _object(point: EntryPoint, attribute: str) -> Any:
    """Return the object that an entry point's module offers.

    Raises:
        PluginError: The module cannot be imported, is for another version, or lacks the object.
    """
    try:
        module = import_module(point.value)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{point.value} cannot be imported: {told(error)}") from error
    stated = getattr(module, STATED, None)
    if stated is None:
        raise PluginError(f"{point.value} does not say {STATED} = {PLUGIN_API}")
    if stated != PLUGIN_API:
        raise PluginError(
            f"{point.value} was made for plug-in API {stated!r}, and this spbench has "
            f"{PLUGIN_API}; install a version of it for {PLUGIN_API}"
        )
    if not hasattr(module, attribute):
        raise PluginError(f"{point.value} has no {attribute}, which {point.group} asks for")
    return getattr(module, attribute)
