"""Ranks on a host, by its name in the hostfile, in ssh or on the host."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping

from spbench.launch.launcher import LostConnection


def find_ranks(host: str, spellings: Mapping[int, Collection[str]]) -> list[int]:
    """Return the ranks on a host, in order; none if no rank's host has such a name.

    Short and full names of a host match if no rank's host has exactly the given name.
    """
    name = _normalize(host)
    names = {
        rank: {_normalize(spelling) for spelling in spellings[rank]} for rank in sorted(spellings)
    }
    exact = [rank for rank, spelling in names.items() if name in spelling]
    if exact or _is_address(name):
        return exact
    short = name.partition(".")[0]
    return [
        rank
        for rank, spelling in names.items()
        if any(_matches_shortened(name, short, other) for other in spelling)
    ]


def names_unknown_host(
    lost: Iterable[LostConnection], spellings: Mapping[int, Collection[str]]
) -> bool:
    """Return whether a lost connection names a host on which no rank is known."""
    return any(
        connection.host is not None and not find_ranks(connection.host, spellings)
        for connection in lost
    )


def _normalize(host: str) -> str:
    # ssh prints names in lower case; in a hostfile, a user may precede a name
    return host.rpartition("@")[2].lower().rstrip(".")


def _matches_shortened(name: str, short: str, other: str) -> bool:
    """Return whether one of two names is the other one's first label."""
    return short in (name, other) and other.partition(".")[0] == short and not _is_address(other)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
