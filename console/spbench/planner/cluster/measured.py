"""Clusters from measured links: a run of ``link.pingpong``.

The hosts of the run are the machines, and their ranks the devices. The times of the pairs within
a host, or between two hosts, give a median one-way time at each message size. The line
``alpha + bytes / beta`` through the smallest and the largest size gives latency and bandwidth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from operator import itemgetter

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.errors import PlannerError
from spbench.record.runs.folder import RunFolder
from spbench.report.links import LinkMatrix, LinkTable, build_link_matrices
from spbench.report.recorded import load_run
from spbench.stats.summary import median

_TIME_TABLE = "latency_us"

HostPair = tuple[str, str]
"""Two hosts, in alphabetical order; the same one twice for the pairs within it."""


def build_measured_cluster(folder: RunFolder, memory_bytes: float | None = None) -> Cluster:
    """Return the cluster on which a run measured links, in its case with most ranks.

    Args:
        folder: The run.
        memory_bytes: Memory of each device, which is not in the run; None for no limit.

    Raises:
        PlannerError: There are no one-way times between ranks at two or more sizes, or none
            between some of its hosts.
        UsageError: The run cannot be read.
    """
    measurements = [
        (matrix.ranks, tables)
        for matrix in build_link_matrices(load_run(folder))
        if (tables := _find_time_tables(matrix))
    ]
    if not measurements:
        raise PlannerError(
            f"the run {folder.id} measured no one-way times between ranks at two message sizes or"
            " more; take a run of link.pingpong"
        )
    _, tables = max(measurements, key=itemgetter(0))
    host_by_rank = {rank: host for table in tables.values() for rank, host in table.hosts.items()}
    link_by_hosts = _fit_links(tables)
    names = list(dict.fromkeys(host_by_rank[rank] for rank in sorted(host_by_rank)))
    kind = DeviceKind("measured", memory_bytes)
    hosts_of_ranks = list(host_by_rank.values())
    machines = tuple(
        Machine(name, (kind,) * hosts_of_ranks.count(name), link_by_hosts.get((name, name)))
        for name in names
    )
    link_by_machines = {
        (names.index(a), names.index(b)): link for (a, b), link in link_by_hosts.items() if a != b
    }
    pairs_lower_first = {
        (min(machine_pair), max(machine_pair)): link
        for machine_pair, link in link_by_machines.items()
    }
    return Cluster(folder.id, machines, pairs=pairs_lower_first)


def _find_time_tables(matrix: LinkMatrix) -> dict[int, LinkTable]:
    """Return a matrix's tables of one-way times by message size; empty if below two."""
    tables = {
        table.labels["bytes"]: table
        for table in matrix.tables
        if table.name == _TIME_TABLE and type(table.labels.get("bytes")) is int and table.hosts
    }
    return dict(sorted(tables.items())) if len(tables) > 1 else {}


def _fit_links(tables: Mapping[int, LinkTable]) -> dict[HostPair, Link]:
    """Return the links between hosts and within hosts."""
    times_s_by_hosts: dict[HostPair, dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for size, table in tables.items():
        for (source, target), latency_us in table.values.items():
            a, b = sorted((table.hosts[source], table.hosts[target]))
            times_s_by_hosts[a, b][size].append(latency_us / 1e6)
    link_by_hosts = {}
    for (a, b), times_s_by_size in times_s_by_hosts.items():
        name = a if a == b else f"{a}-{b}"
        link_by_hosts[a, b] = fit_link(
            name, {size: median(times_s) for size, times_s in times_s_by_size.items()}
        )
    return link_by_hosts


def fit_link(name: str, one_way_s: Mapping[int, float]) -> Link:
    """Return the link through the times of the smallest and the largest message.

    Args:
        name: Its name.
        one_way_s: One-way seconds by bytes.

    Raises:
        PlannerError: The largest message does not take longer than the smallest.
    """
    smallest_bytes = min(one_way_s)
    largest_bytes = max(one_way_s)
    difference_s = one_way_s[largest_bytes] - one_way_s[smallest_bytes]
    if difference_s <= 0:
        raise PlannerError(
            f"on the link {name} {largest_bytes} B took no longer than {smallest_bytes} B;"
            " measure larger messages"
        )
    bandwidth = (largest_bytes - smallest_bytes) / difference_s
    return Link(name, bandwidth, max(one_way_s[smallest_bytes] - smallest_bytes / bandwidth, 0.0))
