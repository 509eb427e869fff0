"""Clusters as text of ``spbench.cluster/1``, to write into a file and edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spbench.planner.cluster.machines import Cluster, DeviceKind, Link, Machine

SCHEMA = "spbench.cluster/1"


def render_cluster(cluster: Cluster) -> str:
    """Return the text of a cluster file, for `load_cluster`.

    Names must be plain words, as those of clusters without a file are.
    """
    return "".join(f"{line}\n" for line in _generate_lines(cluster))


def _generate_lines(cluster: Cluster) -> Iterator[str]:
    yield f"schema: {SCHEMA}"
    yield "devices:"
    for kind in dict.fromkeys(cluster.kinds):
        yield f"  {kind.name}: {{{_format_device(kind)}}}"
    if cluster.links:
        yield "links:"
    for link in dict.fromkeys(cluster.links):
        yield f"  {link.name}: {{{_format_link(link)}}}"
    yield "machines:"
    yield from map(_format_machine, cluster.machines)
    if cluster.between is not None:
        yield f"between: {cluster.between.name}"


def _format_device(kind: DeviceKind) -> str:
    memory = [] if kind.memory_bytes is None else [f"memory: {kind.memory_bytes / 1e9:g}GB"]
    return ", ".join([*memory, f"speed: {kind.speed:g}"])


def _format_link(link: Link) -> str:
    parts = [f"bandwidth: {_format_rate(link.bandwidth)}"]
    if link.all_reduce is not None:
        parts.append(f"all_reduce: {_format_rate(link.all_reduce)}")
    return ", ".join([*parts, f"latency: {1e6 * link.latency_s:g}us"])


def _format_rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:g}GB/s"


def _format_machine(machine: Machine) -> str:
    counts = Counter(kind.name for kind in machine.devices)
    devices = ", ".join(f"{name}: {count}" for name, count in counts.items())
    link = "" if machine.link is None else f", link: {machine.link.name}"
    return f"  - {{name: {machine.name}, devices: {{{devices}}}{link}}}"
