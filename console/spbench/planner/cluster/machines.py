"""Clusters: machines, their devices and the links between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from spbench.planner.errors import PlannerError
from spbench.planner.ranges import BANDWIDTHS, DELAYS_S, MAX_DEVICES, MEMORIES, SPEEDS

GB = 1e9


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two devices, in each direction.

    Attributes:
        bandwidth: Bytes per second from one device to another.
        latency_s: Seconds until the first byte arrives.
        all_reduce: Bytes per second and device in an all-reduce; None for ``bandwidth``.
        overhead_s: Seconds for which a message of any size keeps each of the two devices from
            computing: ``o`` of LogP (Culler et al., PPoPP 1993).
        copy_bandwidth: Bytes per second at which the two devices copy a message, which keeps them
            from computing; None if the devices do not copy.
    """

    name: str
    bandwidth: float
    latency_s: float = 0.0
    all_reduce: float | None = None
    overhead_s: float = 0.0
    copy_bandwidth: float | None = None

    def __post_init__(self) -> None:
        rates = (self.bandwidth, self.all_reduce, self.copy_bandwidth)
        if any(rate is not None and not BANDWIDTHS.contains(rate) for rate in rates):
            raise PlannerError(f"the link {self.name} needs bandwidths {BANDWIDTHS}")
        if not (DELAYS_S.contains(self.latency_s) and DELAYS_S.contains(self.overhead_s)):
            raise PlannerError(f"the link {self.name} needs a latency and an overhead {DELAYS_S}")

    @property
    def all_reduce_bandwidth(self) -> float:
        """Bytes per second and device in an all-reduce."""
        return self.bandwidth if self.all_reduce is None else self.all_reduce

    def compute_seconds(self, message_bytes: float) -> float:
        """Return the seconds until `message_bytes` have reached the other device."""
        return self.latency_s + message_bytes / self.bandwidth if message_bytes else 0.0


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device.

    Attributes:
        memory_bytes: Its memory; None if unknown, so that any stage fits.
        speed: Its speed relative to the device of the profile.
    """

    name: str
    memory_bytes: float | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not (self.memory_bytes is None or MEMORIES.contains(self.memory_bytes)):
            raise PlannerError(f"the device {self.name} needs a memory {MEMORIES}")
        if not SPEEDS.contains(self.speed):
            raise PlannerError(f"the device {self.name} needs a speed {SPEEDS}")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine.

    Attributes:
        devices: The kind of each of its devices.
        link: The link between any two of them; optional for a single device.
    """

    name: str
    devices: tuple[DeviceKind, ...]
    link: Link | None = None

    def __post_init__(self) -> None:
        if not self.devices:
            raise PlannerError(f"the machine {self.name} has no devices")
        if self.link is None and len(self.devices) > 1:
            raise PlannerError(f"the machine {self.name} has several devices and no link for them")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines in an order; devices are numbered through them from 0.

    Attributes:
        between: The link between machines; optional for a single machine.
        pairs: Links of pairs of machines that differ from it, by index, lower first.
        is_assumed: Whether links and memory are assumed because only numbers of devices are
            known.

    Raises:
        PlannerError: It has no machine or too many devices, or two machines have no link.
    """

    name: str
    machines: tuple[Machine, ...]
    between: Link | None = None
    pairs: dict[tuple[int, int], Link] = field(default_factory=dict)
    is_assumed: bool = False

    def __post_init__(self) -> None:
        if not self.machines:
            raise PlannerError(f"the cluster {self.name} has no machines")
        _check_devices(self.name, self.device_count)
        machine_count = len(self.machines)
        if any(not 0 <= a < b < machine_count for a, b in self.pairs):
            raise PlannerError(f"the cluster {self.name} has a link of machines it does not have")
        if self.between is None and len(self.pairs) < machine_count * (machine_count - 1) // 2:
            raise PlannerError(f"the cluster {self.name} has machines without a link between them")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Devices of each machine."""
        return tuple(len(machine.devices) for machine in self.machines)

    @property
    def ends(self) -> tuple[int, ...]:
        """The device number after the last one of each machine."""
        return tuple(accumulate(self.sizes))

    @property
    def device_count(self) -> int:
        """Devices of all machines."""
        return sum(self.sizes)

    @property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """The kind of each device."""
        return tuple(kind for machine in self.machines for kind in machine.devices)

    @property
    def links(self) -> tuple[Link, ...]:
        """All links, of pairs of machines and within each."""
        within = [machine.link for machine in self.machines]
        return tuple(link for link in (*within, self.between, *self.pairs.values()) if link)

    def find_machine(self, device: int) -> int:
        """Return the index of a device's machine."""
        return bisect_right(self.ends, device)

    def find_link(self, a: int, b: int) -> Link:
        """Return the link between two machines, by index, or within one machine.

        Raises:
            PlannerError: There is no such link.
        """
        if a == b:
            link = self.machines[a].link
        else:
            link = self.pairs.get((min(a, b), max(a, b)), self.between)
        if link is None:
            names = f"{self.machines[a].name} and {self.machines[b].name}"
            raise PlannerError(f"the cluster {self.name} has no link between {names}")
        return link


def _check_devices(name: str, count: int) -> None:
    if count > MAX_DEVICES:
        raise PlannerError(f"the cluster {name} has {count} devices; give it at most {MAX_DEVICES}")


NVLINK = Link("nvlink", 25 * GB)
"""HPGO's bandwidth within a machine."""
ETHERNET_25 = Link("ethernet-25g", 1 * GB, all_reduce=3 * GB)
"""HPGO's bandwidths between machines: 1 GB/s in messages, 3 GB/s in an all-reduce."""
ETHERNET_10 = Link("ethernet-10g", 0.4 * GB, all_reduce=1.2 * GB)
"""In proportion to `ETHERNET_25`; HPGO has no value for 10 Gbit/s."""
V100 = DeviceKind("v100-16gb", 16 * GB)
"""HPGO's only device."""


def make_hpgo_cluster(name: str, sizes: Sequence[int], between: Link = ETHERNET_25) -> Cluster:
    """Return a cluster of HPGO's devices; ``sizes`` is their number in each machine.

    Raises:
        PlannerError: There is no machine, a machine without devices, or too many devices.
    """
    _check_devices(name, sum(sizes))
    machines = tuple(
        Machine(f"node{index}", (V100,) * size, NVLINK) for index, size in enumerate(sizes)
    )
    return Cluster(name, machines, between, is_assumed=True)


PRESETS = {
    "dapple-a": make_hpgo_cluster("dapple-a", (8, 8)),
    "dapple-b": make_hpgo_cluster("dapple-b", (1,) * 16),
    "dapple-c": make_hpgo_cluster("dapple-c", (1,) * 16, ETHERNET_10),
}
"""The clusters of the DAPPLE paper as HPGO counts them: two machines of 8 devices; 16 of one
device at 25 Gbit/s; the same at 10 Gbit/s."""


def make_cluster_from_ends(ends: Sequence[int]) -> Cluster:
    """Return HPGO's cluster of machines that end before these device numbers.

    ``[8, 16]`` is two machines of 8 devices.

    Raises:
        PlannerError: The numbers do not rise from above 0, or end too high.
    """
    text = ",".join(map(str, ends))
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if not sizes or min(sizes) < 1:
        raise PlannerError(
            f"the machines {text or '(none)'} must be rising device numbers above 0,"
            " each the end of a machine: 8,16 is two machines of 8"
        )
    return make_hpgo_cluster(text, sizes)
