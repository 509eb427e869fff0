"""Placement of ranks on hosts, in blocks of consecutive ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from spbench.errors import MissingError
from spbench.launch.hosts.hosts import Host, Hosts
from spbench.launch.hosts.names import is_local
from spbench.launch.launcher import RankBlock


def count_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def count_slots(hosts: Hosts, ranks_per_host: int | None) -> int:
    """Return the number of ranks that fit on the hosts.

    ``ranks_per_host`` replaces the slots of each host.
    """
    return len(hosts.names) * ranks_per_host if ranks_per_host else hosts.slots


def place_ranks(
    hosts: Hosts | None, np: int, ranks_per_host: int | None = None
) -> tuple[RankBlock, ...]:
    """Return the ranks in blocks, with hosts filled in their order; () without hosts.

    Raises:
        MissingError: The hosts have fewer slots than there are ranks.
    """
    if hosts is None:
        return ()
    available_slots = count_slots(hosts, ranks_per_host)
    if available_slots < np:
        limit = f" at ranks_per_host {ranks_per_host}" if ranks_per_host else ""
        raise MissingError(
            f"{np} ranks need {np} slots, and {hosts.source} has {available_slots} on "
            f"{hosts.fold()}{limit}: "
            f"add hosts or slots{', or raise ranks_per_host' if ranks_per_host else ''}"
        )

    blocks: list[RankBlock] = []
    unplaced_ranks = np
    for host, slots in _list_host_slots(hosts, ranks_per_host):
        block_ranks = min(slots, unplaced_ranks)
        if block_ranks:
            blocks.append(RankBlock(host.name, block_ranks, host.hca))
            unplaced_ranks -= block_ranks
    return tuple(blocks)


def _list_host_slots(hosts: Hosts, ranks_per_host: int | None) -> Iterator[tuple[Host, int]]:
    if ranks_per_host is None:
        yield from ((host, host.slots or 1) for host in hosts.entries)
        return
    # a host with two adapters has two entries, which share its ranks
    entries_by_host = Counter(host.name for host in hosts.entries)
    seen_entries: Counter[str] = Counter()
    for host in hosts.entries:
        slots_per_entry, remainder = divmod(ranks_per_host, entries_by_host[host.name])
        yield host, slots_per_entry + (seen_entries[host.name] < remainder)
        seen_entries[host.name] += 1


def is_oversubscribed(hosts: Hosts | None, np: int) -> bool:
    """Whether this machine gets more ranks than it has cores.

    The cores of other hosts are unknown here. Their slots limit the number of ranks.
    """
    if hosts is not None and not all(is_local(name) for name in hosts.names):
        return False
    return np > count_cores()
