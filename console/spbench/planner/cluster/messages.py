"""Messages between groups of devices: bytes over bandwidth, latency, and overhead.

The link from a machine to the others carries the messages of all its devices one after another.
Within a machine each device sends separately. An all-reduce is a ring through the devices in order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup

Part = tuple[int, float]
"""A machine, and the share of a micro-batch on its devices."""
Parts = tuple[Part, ...]
# Smaller shares come from rounding.
_LEAST_SHARE = 1e-12


class MessageCost(NamedTuple):
    """The cost of a message: seconds per byte, and seconds per message."""

    per_byte: float
    latency: float

    def seconds(self, count: float) -> float:
        """Return the seconds of a message of `count` bytes; 0 bytes are not sent."""
        return self.latency + count * self.per_byte if count else 0.0


class MessageCosts:
    """The costs of messages between groups of a cluster; each is computed once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._speeds = [[kind.speed for kind in machine.devices] for machine in cluster.machines]
        self._transfers: dict[tuple[Parts, Parts, float], MessageCost] = {}
        self._overheads: dict[tuple[DeviceGroup, DeviceGroup], MessageCost] = {}
        self._all_reduces: dict[DeviceGroup, MessageCost] = {}
        self._parts: dict[DeviceGroup, Parts] = {}

    def transfer_cost(self, source: DeviceGroup, target: DeviceGroup) -> MessageCost:
        """Return the cost per byte of a micro-batch from a group to the next one.

        Both groups share a micro-batch in the order of their devices, so the part that both have on
        one machine stays there.
        """
        share = 1.0 / min(source.size, target.size)
        key = self._find_parts(source), self._find_parts(target), share
        if key not in self._transfers:
            self._transfers[key] = self._compute_transfer(*key)
        return self._transfers[key]

    def _compute_transfer(self, source: Parts, target: Parts, max_share: float) -> MessageCost:
        """Return the cost between parts on machines; one device has at most `max_share`."""
        send_s: dict[int, float] = {}
        receive_s: dict[int, float] = {}
        slowest = latency = 0.0
        for sender, receiver, share in _overlaps(source, target):
            link = self._cluster.find_machine_link(sender, receiver)
            latency = max(latency, link.latency_s)
            if sender == receiver:
                slowest = max(slowest, min(max_share, share) / link.bandwidth)
                continue
            seconds = share / link.bandwidth
            send_s[sender] = send_s.get(sender, 0.0) + seconds
            receive_s[receiver] = receive_s.get(receiver, 0.0) + seconds
        return MessageCost(max(slowest, *send_s.values(), *receive_s.values(), 0.0), latency)

    def overhead_cost(self, source: DeviceGroup, target: DeviceGroup) -> MessageCost:
        """Return the time in which a message keeps both groups' devices from computing.

        The cost is per byte of the whole micro-batch, of which a device copies its share.
        """
        key = source, target
        if key not in self._overheads:
            pairs = _overlaps(self._find_parts(source), self._find_parts(target))
            links = [
                self._cluster.find_machine_link(sender, receiver) for sender, receiver, _ in pairs
            ]
            share = 1.0 / min(source.size, target.size)
            slowest = max(1.0 / (link.copy_bandwidth or math.inf) for link in links)
            fixed = max(link.overhead_s for link in links)
            self._overheads[key] = MessageCost(share * slowest, fixed)
        return self._overheads[key]

    def _find_parts(self, group: DeviceGroup) -> Parts:
        """Return the machines of a group with their share of a micro-batch, by speed."""
        if group not in self._parts:
            speeds = [
                (machine, sum(self._speeds[machine][first:last]))
                for machine, (first, last) in enumerate(zip(group.first, group.last, strict=True))
                if last > first
            ]
            total = sum(speed for _, speed in speeds)
            self._parts[group] = tuple((machine, speed / total) for machine, speed in speeds)
        return self._parts[group]

    def all_reduce_cost(self, group: DeviceGroup) -> MessageCost:
        """Return the cost of a group's all-reduce in a ring, per byte on each device."""
        if group not in self._all_reduces:
            self._all_reduces[group] = self._compute_all_reduce(group)
        return self._all_reduces[group]

    def _compute_all_reduce(self, group: DeviceGroup) -> MessageCost:
        counts = [
            (machine, count) for machine, count in enumerate(group.devices_per_machine) if count
        ]
        devices = sum(count for _, count in counts)
        if devices == 1:
            return MessageCost(0.0, 0.0)
        machines = [machine for machine, _ in counts]
        hops = [(machine, machine) for machine, count in counts if count > 1]
        if len(counts) > 1:
            hops += zip(machines, machines[1:] + machines[:1], strict=True)
        links = [self._cluster.find_machine_link(source, target) for source, target in hops]
        bandwidth = min(link.all_reduce_bandwidth for link in links)
        latency = max(link.latency_s for link in links)
        return MessageCost(2.0 * (devices - 1) / devices / bandwidth, 2.0 * (devices - 1) * latency)


def _overlaps(source: Parts, target: Parts) -> list[tuple[int, int, float]]:
    """Return the shares that machines send to machines: sender, receiver and share.

    Sources and targets hold a micro-batch in order.
    """
    overlaps = []
    sources = iter(source)
    targets = iter(target)
    sender, to_send = next(sources)
    receiver, to_receive = next(targets)
    while True:
        share = min(to_send, to_receive)
        if share > _LEAST_SHARE:
            overlaps.append((sender, receiver, share))
        to_send -= share
        to_receive -= share
        # Rounding decides which of two equal shares ends first.
        if to_send <= to_receive:
            next_source = next(sources, None)
            if next_source is None:
                return overlaps
            sender = next_source[0]
            to_send += next_source[1]
        else:
            next_target = next(targets, None)
            if next_target is None:
                return overlaps
            receiver = next_target[0]
            to_receive += next_target[1]
