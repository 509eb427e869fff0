"""Clusters as they were measured: links from a run of ``link.pingpong``.

The hosts of the run are the machines, and their ranks the devices. Of the pairs within a host,
and of those between two hosts, the median one-way time at each message size is taken; the line
``alpha + bytes / beta`` through the smallest and the largest size gives latency and bandwidth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine
from spbench.planner.errors import PlannerError
from spbench.record.runs.folder import RunFolder
from spbench.report.links import LinkMatrix, LinkTable, build_link_matrices
from spbench.report.recorded import load_run
from spbench.stats.summary import median

_TIMES = "latency_us"

Hosts = tuple[str, str]
"""Two hosts, in alphabetical order; the same one twice for the pairs within it."""


def cluster_from_run(folder: RunFolder, memory_bytes: float | None = None) -> Cluster:
    """Return the cluster on which a run measured links; the run with the most ranks counts.

    Args:
        folder: The run.
        memory_bytes: Memory of each device, which the run does not tell; None for no limit.

    Raises:
        PlannerError: The run has no one-way times between ranks at two sizes or more, or none
            between some of its hosts.
        UsageError: It cannot be read.
    """
    measured = [
        (matrix, tables)
        for matrix in build_link_matrices(load_run(folder))
        if (tables := _times(matrix))
    ]
    if not measured:
        raise PlannerError(
            f"the run {folder.id} measured no one-way times between ranks at two message sizes or"
            " more; take a run of link.pingpong"
        )
    _, tables = max(measured, key=lambda pair: pair[0].ranks)
    hosts = {rank: host for table in tables.values() for rank, host in table.hosts.items()}
    links = _links(tables)
    names = list(dict.fromkeys(hosts[rank] for rank in sorted(hosts)))
    kind = DeviceKind("measured", memory_bytes)
    ranks = list(hosts.values())
    machines = tuple(
        Machine(name, (kind,) * ranks.count(name), links.get((name, name))) for name in names
    )
    pairs = {(names.index(a), names.index(b)): link for (a, b), link in links.items() if a != b}
    ordered = {(min(pair), max(pair)): link for pair, link in pairs.items()}
    return Cluster(folder.id, machines, pairs=ordered)


def _times(matrix: LinkMatrix) -> dict[int, LinkTable]:
    """Return a matrix's tables of one-way times by message size; empty with less than two."""
    tables = {
        table.labels["bytes"]: table
        for table in matrix.tables
        if table.name == _TIMES and type(table.labels.get("bytes")) is int and table.hosts
    }
    return dict(sorted(tables.items())) if len(tables) > 1 else {}


def _links(tables: Mapping[int, LinkTable]) -> dict[Hosts, Link]:
    """Return the link of each two hosts, and within each."""
    times: dict[Hosts, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for size, table in tables.items():
        for (source, target), micros in table.values.items():
            a, b = sorted((table.hosts[source], table.hosts[target]))
            times[a, b][size].append(micros / 1e6)
    return {
        (a, b): fit_link(
            a if a == b else f"{a}-{b}", {size: median(each) for size, each in by_size.items()}
        )
        for (a, b), by_size in times.items()
    }


def fit_link(name: str, seconds: Mapping[int, float]) -> Link:
    """Return the link whose line goes through its smallest and its largest message.

    Args:
        name: What it is called.
        seconds: One-way seconds by bytes.

    Raises:
        PlannerError: There are not two sizes, or the largest does not take longest.
    """
    small = min(seconds)
    large = max(seconds)
    longer = seconds[large] - seconds[small]
    if longer <= 0:
        raise PlannerError(
            f"on the link {name} {large} B took no longer than {small} B; measure larger messages"
        )
    bandwidth = (large - small) / longer
    return Link(name, bandwidth, max(seconds[small] - small / bandwidth, 0.0))
