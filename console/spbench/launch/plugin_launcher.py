"""Launchers of plug-ins, whose defects are errors that name the plug-in."""

from __future__ import annotations

from typing import Any, cast

from spbench.errors import MissingError, SpbenchError
from spbench.launch.launcher import Launcher
from spbench.suites.launcher_names import load_plugin_launchers
from spbench_core.plugins import Offer, guard_function


def plugin_launcher(name: str) -> Launcher:
    """Return the launcher that a plug-in has under this name.

    Raises:
        MissingError: There is none.
    """
    found = load_plugin_launchers().get(name)
    if found is None:
        raise MissingError(f"launcher {name} is of a plug-in that is not installed here")
    return cast(Launcher, _PluginLauncher(found))


class _PluginLauncher:
    """A launcher of a plug-in; each error of its functions becomes a MissingError."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._offer.value, name)
        if not callable(part):
            return part
        title = f"{name} of launcher {self._offer.name}"
        return guard_function(part, self._offer.plugin, title, MissingError, (SpbenchError,))
