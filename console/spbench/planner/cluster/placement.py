"""Placement of the next stage by HPGO's policies: fresh, append and scatter first.

Each policy uses the first devices of every machine and leaves the others free, so the devices in
use are one count per machine. The group of devices of a stage is the difference of two such counts.

Source: HPGO, src/environment/device.rs (``next_cards``, ``next_cards_with_replica``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Literal, NamedTuple

Counts = tuple[int, ...]
"""The number of devices in use of each machine."""

Policy = Literal["fresh", "append", "scatter"]
POLICIES: tuple[Policy, ...] = ("fresh", "append", "scatter")
"""Unused machines, machines in use, or one device of each machine in turn."""


class DeviceGroup(NamedTuple):
    """The devices of one stage: those from ``first`` up to ``last`` of each machine."""

    first: Counts
    last: Counts

    @property
    def devices_per_machine(self) -> Counts:
        """The number of its devices on each machine."""
        return tuple(last - first for first, last in zip(self.first, self.last, strict=True))

    @property
    def size(self) -> int:
        """The number of its devices."""
        return sum(self.last) - sum(self.first)

    def list_devices(self, sizes: Counts) -> tuple[int, ...]:
        """Return the device numbers, counted through machines of these sizes."""
        starts = accumulate(sizes, initial=0)
        machine_ranges = zip(starts, self.first, self.last, strict=False)
        return tuple(
            start + index for start, first, last in machine_ranges for index in range(first, last)
        )


class Placements:
    """The groups that can come next in a cluster; each is computed once.

    Args:
        sizes: Devices of each machine.
    """

    def __init__(self, sizes: Counts) -> None:
        self.sizes = sizes
        self.empty: Counts = (0,) * len(sizes)
        self.full = sizes
        self._used_after_by_policy: dict[tuple[Counts, int, Policy], Counts | None] = {}
        self._used_after_each_policy: dict[tuple[Counts, int], tuple[Counts, ...]] = {}
        self._used_after_groups: dict[tuple[Counts, int, int], tuple[Counts, ...]] = {}

    def place_by_each_policy(self, used: Counts, device_count: int) -> tuple[Counts, ...]:
        """Return the different counts after `device_count` more devices, in policy order."""
        key = used, device_count
        if key not in self._used_after_each_policy:
            used_afterwards = (self.place_group(used, device_count, policy) for policy in POLICIES)
            self._used_after_each_policy[key] = tuple(
                dict.fromkeys(
                    used_after for used_after in used_afterwards if used_after is not None
                )
            )
        return self._used_after_each_policy[key]

    def place_group(self, used: Counts, device_count: int, policy: Policy) -> Counts | None:
        """Return the counts after `device_count` more devices; None if there are too few."""
        key = used, device_count, policy
        if key not in self._used_after_by_policy:
            self._used_after_by_policy[key] = self._apply_policy(*key)
        return self._used_after_by_policy[key]

    def _apply_policy(self, used: Counts, device_count: int, policy: Policy) -> Counts | None:
        if policy == "scatter":
            return _scatter(used, device_count, self.sizes)
        is_fresh = policy == "fresh"
        machines = (machine for machine, count in enumerate(used) if (not count) == is_fresh)
        return _fill(used, device_count, self.sizes, machines)

    def place_groups(self, used: Counts, device_count: int, group_count: int) -> tuple[Counts, ...]:
        """Return the different counts after some groups of equally many devices each."""
        key = used, device_count, group_count
        if key not in self._used_after_groups:
            used_afterwards = dict.fromkeys([used])
            for _ in range(group_count):
                used_afterwards = dict.fromkeys(
                    used_after
                    for used_before in used_afterwards
                    for used_after in self.place_by_each_policy(used_before, device_count)
                )
            self._used_after_groups[key] = tuple(used_afterwards)
        return self._used_after_groups[key]

    def place_in_order(self, used: Counts, device_count: int) -> tuple[Counts, ...]:
        """Return the counts after the next devices by number, if there are enough."""
        used_after = _fill(used, device_count, self.sizes, range(len(used)))
        return () if used_after is None else (used_after,)

    def place_first(self, device_count: int) -> Counts:
        """Return the counts after the first `device_count` devices of an empty cluster."""
        (used_after,) = self.place_in_order(self.empty, device_count)
        return used_after


def _fill(used: Counts, device_count: int, sizes: Counts, machines: Iterable[int]) -> Counts | None:
    """Fill these machines in order; return None if they have too few free devices."""
    used_after = list(used)
    for machine in machines:
        count = min(device_count, sizes[machine] - used[machine])
        used_after[machine] += count
        device_count -= count
    return None if device_count else tuple(used_after)


def _scatter(used: Counts, device_count: int, sizes: Counts) -> Counts | None:
    """Take one free device of each machine in turn; return None if there are too few."""
    free_devices = [size - count for size, count in zip(sizes, used, strict=True)]
    if sum(free_devices) < device_count:
        return None
    rounds = _count_full_rounds(free_devices, device_count)
    added_by_machine = [min(count, rounds) for count in free_devices]
    still_needed = device_count - sum(added_by_machine)
    for machine, count in enumerate(free_devices):
        if still_needed and count > rounds:
            added_by_machine[machine] += 1
            still_needed -= 1
    return tuple(count + added for count, added in zip(used, added_by_machine, strict=True))


def _count_full_rounds(free_devices: list[int], device_count: int) -> int:
    """Return the rounds in which each machine with a free device can give one."""
    low_rounds = 0
    high_rounds = max(free_devices)
    while low_rounds < high_rounds:
        middle_rounds = (low_rounds + high_rounds + 1) // 2
        if sum(min(count, middle_rounds) for count in free_devices) <= device_count:
            low_rounds = middle_rounds
        else:
            high_rounds = middle_rounds - 1
    return low_rounds
