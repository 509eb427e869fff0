"""The cluster of this machine: its cores as devices."""

from __future__ import annotations

from spbench.launch.placement import count_cores
from spbench.planner.cluster.machines import GB, Cluster, DeviceKind, Link, Machine
from spbench.planner.ranges import MAX_DEVICES
from spbench.record.machine.machine_files import read_memory_kib

THIS_MACHINE = "this-machine"
"""The name of the cluster."""
SHARED_MEMORY = Link("shared-memory", 2 * GB)
"""Assumed: link.pingpong measures the real bandwidth, and a plan can use that run."""


def build_this_machine() -> Cluster:
    """Return the cores of this machine, each with its share of the memory."""
    num_cores = min(count_cores(), MAX_DEVICES)
    memory_bytes = 1024 * read_memory_kib() / num_cores
    core = DeviceKind("core", memory_bytes or None)
    machine = Machine(THIS_MACHINE, (core,) * num_cores, SHARED_MEMORY)
    return Cluster(THIS_MACHINE, (machine,), is_assumed=True)
