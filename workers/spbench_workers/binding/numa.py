"""Nearness of a GPU to the cores of a rank, by their NUMA nodes in sysfs."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

PCI = Path("/sys/bus/pci/devices")
CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")


def find_gpu_node(address: str) -> int | None:
    """Return the NUMA node of a PCI address; None if the system does not report it."""
    try:
        node = int((PCI / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def find_core_nodes(cpus: Iterable[int]) -> set[int]:
    """Return the NUMA nodes of some cores."""
    return {int(path.name[4:]) for cpu in cpus for path in (CPUS / f"cpu{cpu}").glob("node[0-9]*")}


def count_physical_cores(cpus: Iterable[int]) -> int:
    """Return the number of physical cores of some CPUs.

    A CPU with unknown siblings counts as one core.
    """
    return len({_read_siblings(cpu) for cpu in cpus})


def _read_siblings(cpu: int) -> str:
    try:
        return (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def list_cores_by_node() -> dict[int, set[int]]:
    """Return the cores of each NUMA node of this host that has cores."""
    cores: dict[int, set[int]] = {}
    for path in CPUS.glob("cpu[0-9]*/node[0-9]*"):
        cores.setdefault(int(path.name[4:]), set()).add(int(path.parent.name[3:]))
    return cores


def find_farthest_node(node: int, candidates: Container[int]) -> int | None:
    """Return the candidate NUMA node that is the farthest from ``node``, or None."""
    try:
        distances = list(map(int, (NODES / f"node{node}" / "distance").read_text().split()))
    except (OSError, ValueError):
        return None
    # The system lists the distances of existing nodes in the order of their numbers.
    numbers = sorted(int(path.name[4:]) for path in NODES.glob("node[0-9]*"))
    distances_to_others = [
        (distance, -number)
        for number, distance in zip(numbers, distances, strict=False)
        if number != node and number in candidates
    ]
    return -max(distances_to_others)[1] if distances_to_others else None


def describe_nearness(address: str | None, cpus: Iterable[int]) -> tuple[bool | None, str]:
    """Return whether a GPU is near some cores, and a phrase about it.

    The first is None if unknown. A GPU is near if it is on a NUMA node that has cores of the rank.
    """
    node = find_gpu_node(address) if address is not None else None
    nodes = find_core_nodes(cpus)
    if node is None or not nodes:
        return None, "its NUMA node is not known"
    cores = f"node {', '.join(map(str, sorted(nodes)))}"
    if node in nodes:
        return True, f"near the rank's cores on NUMA {cores}"
    return False, f"far from the rank's cores: it is on NUMA node {node}, they on {cores}"
