"""The inputs of a plan in words: the network of its profile, and its cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.this_machine import THIS_MACHINE
from spbench.planner.output.plan_description import describe_links, describe_memory
from spbench.planner.profile.layers import Profile
from spbench_core.number_text import format_quantity

_MAX_GROUPS = 3
"""The most groups of equal machines that are described one by one."""


def describe_network(profile: Profile) -> str:
    """Return the network of a profile: ``resnet, depth 11, 32x32``."""
    params = dict(profile.origin.params) if profile.origin is not None else {}
    return ", ".join([profile.name, *_list_sizes(params)])


def _list_sizes(params: dict[str, Any]) -> Iterator[str]:
    for name, text in (("arch", "{}"), ("depth", "depth {}"), ("num_layers", "{} cells")):
        if params.get(name) is not None:
            yield text.format(params[name])
    image_size = params.get("image_size")
    if isinstance(image_size, int):
        yield f"{image_size}x{image_size}"
    elif image_size:
        yield "x".join(map(str, image_size))


def describe_machines(cluster: Cluster) -> str:
    """Return the size of a cluster: ``2 machines with 8 devices each``."""
    if cluster.name == THIS_MACHINE:
        return f"{socket.gethostname()}, {format_quantity(cluster.device_count, 'core')}"
    groups = [(len(list(group)), size) for size, group in groupby(cluster.sizes)]
    if len(groups) > _MAX_GROUPS:
        machines_text = format_quantity(len(cluster.machines), "machine")
        return f"{machines_text} with {format_quantity(cluster.device_count, 'device')} in all"
    return " and ".join(describe_group(machines, devices) for machines, devices in groups)


def describe_group(machines: int, devices: int) -> str:
    """Return the size of machines with an equal number of devices."""
    devices_text = format_quantity(devices, "device")
    if machines == 1:
        return f"1 machine with {devices_text}"
    return f"{format_quantity(machines, 'machine')} with {devices_text} each"


def describe_device_speed(profile: Profile, cluster: Cluster) -> str:
    """Return the assumed speed of devices; empty if a cluster file has it."""
    if not cluster.is_assumed:
        return ""
    origin = profile.origin
    threads = f" of {format_quantity(origin.threads, 'thread')}" if origin is not None else ""
    return (
        f"assumed speed: each device is as fast as one rank{threads} when the profile was"
        " measured, including the effect of other work at that time"
    )


def describe_cluster_values(cluster: Cluster) -> str:
    """Return the links and the memory of a cluster, and whether they are assumed."""
    links = describe_links(cluster)
    if links and cluster.is_assumed:
        links = f"{links}, no latency"
    return "; ".join(filter(None, (links, describe_memory(cluster))))
