"""Placement of ranks on hosts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from spbench.errors import MissingError
from spbench.launch.hosts.hosts import Host, Hosts
from spbench.launch.hosts.names import is_local
from spbench.launch.launcher import Placed


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def available_slots(hosts: Hosts, ranks_per_host: int | None) -> int:
    """Return how many ranks the hosts take; ``ranks_per_host`` replaces what they state."""
    return len(hosts.names) * ranks_per_host if ranks_per_host else hosts.slots


def place(hosts: Hosts | None, np: int, ranks_per_host: int | None = None) -> tuple[Placed, ...]:
    """Return the ranks in blocks, hosts filled in their order; () without hosts.

    Raises:
        MissingError: The hosts have fewer slots than there are ranks.
    """
    if hosts is None:
        return ()
    have = available_slots(hosts, ranks_per_host)
    if have < np:
        each = f" at ranks_per_host {ranks_per_host}" if ranks_per_host else ""
        raise MissingError(
            f"{np} ranks need {np} slots, and {hosts.source} has {have} on {hosts.fold()}{each}: "
            f"add hosts or slots{', or raise ranks_per_host' if ranks_per_host else ''}"
        )
    placed: list[Placed] = []
    left = np
    for host, slots in _slots_in_order(hosts, ranks_per_host):
        count = min(slots, left)
        if count:
            placed.append(Placed(host.name, count, host.hca))
            left -= count
    return tuple(placed)


def _slots_in_order(hosts: Hosts, ranks_per_host: int | None) -> Iterator[tuple[Host, int]]:
    if ranks_per_host is None:
        yield from ((host, host.slots or 1) for host in hosts.entries)
        return
    # a host with two adapters has two entries, which share its ranks
    entries = Counter(host.name for host in hosts.entries)
    seen: Counter[str] = Counter()
    for host in hosts.entries:
        share, more = divmod(ranks_per_host, entries[host.name])
        yield host, share + (seen[host.name] < more)
        seen[host.name] += 1


def oversubscribed(hosts: Hosts | None, np: int) -> bool:
    """Say whether this machine gets more ranks than it has cores.

    Other hosts' cores are not known from here: their slots say how many ranks they take.
    """
    if hosts is not None and not all(is_local(name) for name in hosts.names):
        return False
    return np > cores()
