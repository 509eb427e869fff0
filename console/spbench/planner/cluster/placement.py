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

    def devices(self, sizes: Counts) -> tuple[int, ...]:
        """Return the device numbers, counted through machines of these sizes."""
        starts = accumulate(sizes, initial=0)
        ranges = zip(starts, self.first, self.last, strict=False)
        return tuple(start + index for start, first, last in ranges for index in range(first, last))


class Placements:
    """The groups that can come next in a cluster; each is computed once.

    Args:
        sizes: Devices of each machine.
    """

    def __init__(self, sizes: Counts) -> None:
        self.sizes = sizes
        self.empty: Counts = (0,) * len(sizes)
        self.full = sizes
        self._by_policy: dict[tuple[Counts, int, Policy], Counts | None] = {}
        self._by_each_policy: dict[tuple[Counts, int], tuple[Counts, ...]] = {}
        self._by_count: dict[tuple[Counts, int, int], tuple[Counts, ...]] = {}

    def place_by_each_policy(self, used: Counts, need: int) -> tuple[Counts, ...]:
        """Return the different counts after `need` more devices, in policy order."""
        used_and_need = used, need
        if used_and_need not in self._by_each_policy:
            counts = (self.place_group(used, need, policy) for policy in POLICIES)
            self._by_each_policy[used_and_need] = tuple(
                dict.fromkeys(after for after in counts if after is not None)
            )
        return self._by_each_policy[used_and_need]

    def place_group(self, used: Counts, need: int, policy: Policy) -> Counts | None:
        """Return the counts after `need` more devices; None if there are too few."""
        used_need_and_policy = used, need, policy
        if used_need_and_policy not in self._by_policy:
            self._by_policy[used_need_and_policy] = self._apply_policy(*used_need_and_policy)
        return self._by_policy[used_need_and_policy]

    def _apply_policy(self, used: Counts, need: int, policy: Policy) -> Counts | None:
        if policy == "scatter":
            return _scatter(used, need, self.sizes)
        is_fresh = policy == "fresh"
        machines = (machine for machine, count in enumerate(used) if (not count) == is_fresh)
        return _fill(used, need, self.sizes, machines)

    def place_groups(self, used: Counts, need: int, times: int) -> tuple[Counts, ...]:
        """Return the different counts after `times` groups of `need` devices, one by one."""
        used_need_and_times = used, need, times
        if used_need_and_times not in self._by_count:
            counts = dict.fromkeys([used])
            for _ in range(times):
                counts = dict.fromkeys(
                    after for before in counts for after in self.place_by_each_policy(before, need)
                )
            self._by_count[used_need_and_times] = tuple(counts)
        return self._by_count[used_need_and_times]

    def place_in_order(self, used: Counts, need: int) -> tuple[Counts, ...]:
        """Return the counts after the next `need` devices by number, if there are enough."""
        after = _fill(used, need, self.sizes, range(len(used)))
        return () if after is None else (after,)

    def place_first(self, need: int) -> Counts:
        """Return the counts after the first `need` devices of an empty cluster."""
        (after,) = self.place_in_order(self.empty, need)
        return after


def _fill(used: Counts, need: int, sizes: Counts, machines: Iterable[int]) -> Counts | None:
    """Fill these machines in order; return None if they have too few free devices."""
    after = list(used)
    for machine in machines:
        count = min(need, sizes[machine] - used[machine])
        after[machine] += count
        need -= count
    return None if need else tuple(after)


def _scatter(used: Counts, need: int, sizes: Counts) -> Counts | None:
    """Take one free device of each machine in turn; return None if there are too few."""
    free_devices = [size - count for size, count in zip(sizes, used, strict=True)]
    if sum(free_devices) < need:
        return None
    rounds = _count_full_rounds(free_devices, need)
    added = [min(count, rounds) for count in free_devices]
    still_needed = need - sum(added)
    for machine, count in enumerate(free_devices):
        if still_needed and count > rounds:
            added[machine] += 1
            still_needed -= 1
    return tuple(count + more for count, more in zip(used, added, strict=True))


def _count_full_rounds(free_devices: list[int], need: int) -> int:
    """Return the rounds in which each machine with a free device can give one."""
    low_rounds = 0
    high_rounds = max(free_devices)
    while low_rounds < high_rounds:
        middle_rounds = (low_rounds + high_rounds + 1) // 2
        if sum(min(count, middle_rounds) for count in free_devices) <= need:
            low_rounds = middle_rounds
        else:
            high_rounds = middle_rounds - 1
    return low_rounds
