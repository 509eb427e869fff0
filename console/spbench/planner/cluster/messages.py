"""Messages between groups of devices: bytes over bandwidth, latency, and overhead.

A machine's link to the others carries what all its devices send there, one after another; within
a machine each device sends on its own. An all-reduce is a ring through the devices in order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup

Part = tuple[int, float]
"""A machine, and the share of a micro-batch that its devices have."""
Parts = tuple[Part, ...]


class MessageCost(NamedTuple):
    """The cost of a message: seconds for each byte, and seconds whatever its size."""

    per_byte: float
    latency: float

    def seconds(self, count: float) -> float:
        """Return the seconds of a message of so many bytes; none for nothing."""
        return self.latency + count * self.per_byte if count else 0.0


class LinkCosts:
    """The rates between groups of a cluster; each is worked out once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._speeds = [[kind.speed for kind in machine.devices] for machine in cluster.machines]
        self._transfers: dict[tuple[Parts, Parts, float], MessageCost] = {}
        self._overheads: dict[tuple[DeviceGroup, DeviceGroup], MessageCost] = {}
        self._reduces: dict[DeviceGroup, MessageCost] = {}
        self._shares: dict[DeviceGroup, Parts] = {}

    def transfer_cost(self, source: DeviceGroup, target: DeviceGroup) -> MessageCost:
        """Return the rate from a group, whose devices share a micro-batch, to the next group.

        Both share it in the order of their devices, so what both have on one machine stays there.
        The bytes are those of the whole micro-batch.
        """
        key = self._parts(source), self._parts(target), 1.0 / min(source.size, target.size)
        if key not in self._transfers:
            self._transfers[key] = self._transfer(*key)
        return self._transfers[key]

    def _transfer(self, source: Parts, target: Parts, share: float) -> MessageCost:
        """Return the rate between parts of machines, one device having at most a share."""
        cluster = self._cluster
        sent: dict[int, float] = {}
        got: dict[int, float] = {}
        slowest = latency = 0.0
        for a, b, part in _overlaps(source, target):
            link = cluster.find_machine_link(a, b)
            latency = max(latency, link.latency_s)
            if a == b:
                slowest = max(slowest, min(share, part) / link.bandwidth)
                continue
            sent[a] = sent.get(a, 0.0) + part / link.bandwidth
            got[b] = got.get(b, 0.0) + part / link.bandwidth
        return MessageCost(max(slowest, *sent.values(), *got.values(), 0.0), latency)

    def overhead_cost(self, source: DeviceGroup, target: DeviceGroup) -> MessageCost:
        """Return for how long a message keeps each device of two groups from computing.

        The bytes are those of the whole micro-batch, of which a device copies its own share.
        """
        key = source, target
        if key not in self._overheads:
            pairs = _overlaps(self._parts(source), self._parts(target))
            links = [self._cluster.find_machine_link(a, b) for a, b, _ in pairs]
            share = 1.0 / min(source.size, target.size)
            slowest = max(1.0 / (each.copy_bandwidth or math.inf) for each in links)
            fixed = max(each.overhead_s for each in links)
            self._overheads[key] = MessageCost(share * slowest, fixed)
        return self._overheads[key]

    def _parts(self, group: DeviceGroup) -> Parts:
        """Return the machines of a group with their share of a micro-batch, by speed."""
        if group not in self._shares:
            self._shares[group] = self._shared(group)
        return self._shares[group]

    def _shared(self, group: DeviceGroup) -> Parts:
        speeds = [
            (at, sum(self._speeds[at][first:last]))
            for at, (first, last) in enumerate(zip(group.first, group.last, strict=True))
            if last > first
        ]
        whole = sum(speed for _, speed in speeds)
        return tuple((at, speed / whole) for at, speed in speeds)

    def all_reduce_cost(self, group: DeviceGroup) -> MessageCost:
        """Return the rate of a ring in which a group sums as many bytes on each device."""
        if group not in self._reduces:
            self._reduces[group] = self._all_reduce(group)
        return self._reduces[group]

    def _all_reduce(self, group: DeviceGroup) -> MessageCost:
        held = [(at, count) for at, count in enumerate(group.devices_per_machine) if count]
        devices = sum(count for _, count in held)
        if devices == 1:
            return MessageCost(0.0, 0.0)
        around = [at for at, _ in held]
        hops = [(at, at) for at, count in held if count > 1]
        if len(held) > 1:
            hops += zip(around, around[1:] + around[:1], strict=True)
        links = [self._cluster.find_machine_link(a, b) for a, b in hops]
        bandwidth = min(link.all_reduce_bandwidth for link in links)
        latency = max(link.latency_s for link in links)
        return MessageCost(2.0 * (devices - 1) / devices / bandwidth, 2.0 * (devices - 1) * latency)


def _overlaps(source: Parts, target: Parts) -> list[tuple[int, int, float]]:
    """Return which machine gets from which one what share, when both deal in order."""
    found = []
    mine = iter(source)
    theirs = iter(target)
    (a, left) = next(mine)
    (b, wanted) = next(theirs)
    while True:
        part = min(left, wanted)
        if part > _NOTHING:
            found.append((a, b, part))
        left, wanted = left - part, wanted - part
        # Of shares that ought to be equal either can end first, by rounding.
        if left <= wanted:
            nearest = next(mine, None)
            if nearest is None:
                return found
            a, left = nearest[0], nearest[1] + left
        else:
            following = next(theirs, None)
            if following is None:
                return found
            b, wanted = following[0], following[1] + wanted


_NOTHING = 1e-12
"""A share below which there is none: what rounding leaves."""
