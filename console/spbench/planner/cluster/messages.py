"""Messages between groups of devices: bytes over bandwidth, latency, and overhead.

The link from a machine to the others carries the messages of all its devices one after another.
Within a machine each device sends separately. An all-reduce is a ring through the devices in order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import DeviceGroup

MachineShare = tuple[int, float]
"""A machine, and the share of a micro-batch on its devices."""
MachineShares = tuple[MachineShare, ...]
# Smaller shares come from rounding.
_MIN_SHARE = 1e-12


class MessageCost(NamedTuple):
    """The cost of a message: seconds per byte, and seconds per message."""

    s_per_byte: float
    latency_s: float

    def compute_seconds(self, message_bytes: float) -> float:
        """Return the seconds of a message; 0 bytes are not sent."""
        return self.latency_s + message_bytes * self.s_per_byte if message_bytes else 0.0


class MessageCosts:
    """The costs of messages between groups of a cluster; each is computed once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._speeds = [[kind.speed for kind in machine.devices] for machine in cluster.machines]
        self._transfers: dict[tuple[MachineShares, MachineShares, float], MessageCost] = {}
        self._overheads: dict[tuple[DeviceGroup, DeviceGroup], MessageCost] = {}
        self._all_reduces: dict[DeviceGroup, MessageCost] = {}
        self._machine_shares: dict[DeviceGroup, MachineShares] = {}

    def get_transfer_cost(self, source: DeviceGroup, target: DeviceGroup) -> MessageCost:
        """Return the cost per byte of a micro-batch from a group to the next one.

        Both groups share a micro-batch in the order of their devices, so the part that both have on
        one machine stays there.
        """
        max_share = 1.0 / min(source.size, target.size)
        key = (
            self._find_machine_shares(source),
            self._find_machine_shares(target),
            max_share,
        )
        if key not in self._transfers:
            self._transfers[key] = self._compute_transfer(*key)
        return self._transfers[key]

    def _compute_transfer(
        self, source: MachineShares, target: MachineShares, max_share: float
    ) -> MessageCost:
        """Return the cost between shares on machines; one device has at most `max_share`."""
        send_s_by_machine: dict[int, float] = {}
        receive_s_by_machine: dict[int, float] = {}
        slowest_s = latency_s = 0.0
        for sender, receiver, share in _find_transfers(source, target):
            link = self._cluster.find_link(sender, receiver)
            latency_s = max(latency_s, link.latency_s)
            if sender == receiver:
                slowest_s = max(slowest_s, min(max_share, share) / link.bandwidth)
                continue
            transfer_s = share / link.bandwidth
            send_s_by_machine[sender] = send_s_by_machine.get(sender, 0.0) + transfer_s
            receive_s_by_machine[receiver] = receive_s_by_machine.get(receiver, 0.0) + transfer_s
        return MessageCost(
            max(slowest_s, *send_s_by_machine.values(), *receive_s_by_machine.values(), 0.0),
            latency_s,
        )

    def get_overhead_cost(self, source: DeviceGroup, target: DeviceGroup) -> MessageCost:
        """Return the time in which a message keeps both groups' devices from computing.

        The cost is per byte of the whole micro-batch, of which a device copies its share.
        """
        key = source, target
        if key not in self._overheads:
            transfers = _find_transfers(
                self._find_machine_shares(source), self._find_machine_shares(target)
            )
            links = [self._cluster.find_link(sender, receiver) for sender, receiver, _ in transfers]
            share = 1.0 / min(source.size, target.size)
            slowest_s_per_byte = max(1.0 / (link.copy_bandwidth or math.inf) for link in links)
            overhead_s = max(link.overhead_s for link in links)
            self._overheads[key] = MessageCost(share * slowest_s_per_byte, overhead_s)
        return self._overheads[key]

    def _find_machine_shares(self, group: DeviceGroup) -> MachineShares:
        """Return the machines of a group with their share of a micro-batch, by speed."""
        if group not in self._machine_shares:
            speed_by_machine = [
                (machine, sum(self._speeds[machine][first:last]))
                for machine, (first, last) in enumerate(zip(group.first, group.last, strict=True))
                if last > first
            ]
            group_speed = sum(speed for _, speed in speed_by_machine)
            self._machine_shares[group] = tuple(
                (machine, speed / group_speed) for machine, speed in speed_by_machine
            )
        return self._machine_shares[group]

    def get_all_reduce_cost(self, group: DeviceGroup) -> MessageCost:
        """Return the cost of a group's all-reduce in a ring, per byte on each device."""
        if group not in self._all_reduces:
            self._all_reduces[group] = self._compute_all_reduce(group)
        return self._all_reduces[group]

    def _compute_all_reduce(self, group: DeviceGroup) -> MessageCost:
        device_counts = [
            (machine, count) for machine, count in enumerate(group.devices_per_machine) if count
        ]
        devices = sum(count for _, count in device_counts)
        if devices == 1:
            return MessageCost(0.0, 0.0)
        machines = [machine for machine, _ in device_counts]
        hops = [(machine, machine) for machine, count in device_counts if count > 1]
        if len(device_counts) > 1:
            hops += zip(machines, machines[1:] + machines[:1], strict=True)
        links = [self._cluster.find_link(source, target) for source, target in hops]
        bandwidth = min(link.all_reduce_bandwidth for link in links)
        latency_s = max(link.latency_s for link in links)
        return MessageCost(
            2.0 * (devices - 1) / devices / bandwidth, 2.0 * (devices - 1) * latency_s
        )


class _Transfer(NamedTuple):
    """A share of a micro-batch that one machine sends to another, or keeps."""

    sender: int
    receiver: int
    share: float


def _find_transfers(source: MachineShares, target: MachineShares) -> list[_Transfer]:
    """Return the shares that machines send to machines.

    Sources and targets hold a micro-batch in order.
    """
    transfers = []
    sources = iter(source)
    targets = iter(target)
    sender, to_send = next(sources)
    receiver, to_receive = next(targets)
    while True:
        share = min(to_send, to_receive)
        if share > _MIN_SHARE:
            transfers.append(_Transfer(sender, receiver, share))
        to_send -= share
        to_receive -= share
        # Rounding decides which of two equal shares ends first, so either side may run out.
        if to_send <= to_receive:
            next_source = next(sources, None)
            if next_source is None:
                return transfers
            sender = next_source[0]
            to_send += next_source[1]
        else:
            next_target = next(targets, None)
            if next_target is None:
                return transfers
            receiver = next_target[0]
            to_receive += next_target[1]
