"""Ranks on a host, by its name in the hostfile, in ssh or on the host."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping

from spbench.launch.launcher import LostConnection


def find_ranks(host: str, host_names: Mapping[int, Collection[str]]) -> list[int]:
    """Return the ranks on a host, in order; none if no rank's host has such a name.

    Short and full names of a host match if no rank's host has exactly the given name.

    Args:
        host: The name of the host.
        host_names: The names of each rank's host.
    """
    name = _normalize(host)
    names_by_rank = {rank: set(map(_normalize, host_names[rank])) for rank in sorted(host_names)}
    exact = [rank for rank, names in names_by_rank.items() if name in names]
    if exact or _is_address(name):
        return exact
    return [
        rank
        for rank, names in names_by_rank.items()
        if any(_matches_shortened(name, other) for other in names)
    ]


def names_unknown_host(
    lost: Iterable[LostConnection], host_names: Mapping[int, Collection[str]]
) -> bool:
    """Return whether a lost connection names a host on which no rank is known.

    Args:
        lost: The connections that the launcher has lost; their hosts may be unknown.
        host_names: The names of each rank's host.
    """
    return any(
        connection.host is not None and not find_ranks(connection.host, host_names)
        for connection in lost
    )


def _normalize(host: str) -> str:
    # ssh prints names in lower case; in a hostfile, a user may precede a name
    return host.rpartition("@")[2].lower().rstrip(".")


def _matches_shortened(name: str, other: str) -> bool:
    """Return whether one of two names is the other one's first label."""
    label = name.partition(".")[0]
    same_label = other.partition(".")[0] == label
    return same_label and label in (name, other) and not _is_address(other)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
