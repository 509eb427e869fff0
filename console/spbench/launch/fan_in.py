"""Fan-in of a job: a connection to the console for each rank, or one for each node."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.launch.launcher import Placed, counts
from spbench.suites.settings import LaunchSettings

FLAT_MOST = 1024
"""Ranks that have a connection each, unless the settings say otherwise."""


def relays(settings: LaunchSettings, np: int, placement: Sequence[Placed]) -> bool:
    """Say whether a relay on each node carries its ranks' lines.

    One rank a node would gain nothing. Where the launcher places the ranks, nodes are not known.
    """
    if settings.fan_in != "auto":
        return settings.fan_in == "node"
    alone = bool(placement) and np == len(counts(placement))
    return np > FLAT_MOST and not alone


def connections(settings: LaunchSettings, np: int, placement: Sequence[Placed]) -> int:
    """Return how many connections the console gets, at most."""
    shared = bool(placement) and relays(settings, np, placement)
    return len(counts(placement)) if shared else np
