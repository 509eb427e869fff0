"""Device placement of the next stage by HPGO's policies: fresh, append and scatter first.

Each of them leaves the first devices of every machine in use and the others free, so what is in
use is one count a machine. A group of devices is what lies between two such counts.

Source: HPGO, src/environment/device.rs (``next_cards``, ``next_cards_with_replica``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Literal, NamedTuple

Counts = tuple[int, ...]
"""The number of devices in use of each machine."""

Policy = Literal["fresh", "append", "scatter"]
POLICIES: tuple[Policy, ...] = ("fresh", "append", "scatter")
"""Machines that are free as a whole; those in use; one device of each machine in turn."""


class DeviceGroup(NamedTuple):
    """The devices of one stage: of each machine those from ``first`` up to ``last``."""

    first: Counts
    last: Counts

    @property
    def devices_per_machine(self) -> Counts:
        """Devices of each machine that are in it."""
        return tuple(last - first for first, last in zip(self.first, self.last, strict=True))

    @property
    def size(self) -> int:
        """The number of its devices."""
        return sum(self.last) - sum(self.first)

    def devices(self, sizes: Counts) -> tuple[int, ...]:
        """Return their numbers, counted through the machines of these sizes."""
        starts = accumulate(sizes, initial=0)
        ranges = zip(starts, self.first, self.last, strict=False)
        return tuple(start + at for start, a, b in ranges for at in range(a, b))


class Placements:
    """The groups that can come next in a cluster; each is worked out once.

    Args:
        sizes: Devices of each machine.
    """

    def __init__(self, sizes: Counts) -> None:
        self.sizes = sizes
        self.empty: Counts = (0,) * len(sizes)
        self.full = sizes
        self._placed: dict[tuple[Counts, int, Policy], Counts | None] = {}
        self._next: dict[tuple[Counts, int], tuple[Counts, ...]] = {}
        self._many: dict[tuple[Counts, int, int], tuple[Counts, ...]] = {}

    def place_by_each_policy(self, used: Counts, need: int) -> tuple[Counts, ...]:
        """Return what is in use after a group of ``need`` more devices, each outcome once.

        The order is fresh first, append first, scatter first.
        """
        key = used, need
        if key not in self._next:
            tried = (self.place_group(used, need, policy) for policy in POLICIES)
            self._next[key] = tuple(dict.fromkeys(after for after in tried if after is not None))
        return self._next[key]

    def place_group(self, used: Counts, need: int, policy: Policy) -> Counts | None:
        """Return what is in use after a group of ``need`` more devices by one of the policies.

        Returns:
            None where the policy finds too little room.
        """
        key = used, need, policy
        if key not in self._placed:
            self._placed[key] = self._by_policy(*key)
        return self._placed[key]

    def _by_policy(self, used: Counts, need: int, policy: Policy) -> Counts | None:
        if policy == "scatter":
            return _scatter(used, need, self.sizes)
        fresh = policy == "fresh"
        machines = (at for at, count in enumerate(used) if (not count) == fresh)
        return _fill(used, need, self.sizes, machines)

    def place_groups(self, used: Counts, need: int, times: int) -> tuple[Counts, ...]:
        """Return what is in use after ``times`` groups of ``need`` devices, one after another."""
        key = used, need, times
        if key not in self._many:
            found = dict.fromkeys([used])
            for _ in range(times):
                found = dict.fromkeys(
                    after for each in found for after in self.place_by_each_policy(each, need)
                )
            self._many[key] = tuple(found)
        return self._many[key]

    def place_in_order(self, used: Counts, need: int) -> tuple[Counts, ...]:
        """Return what is in use after the next ``need`` devices by number."""
        after = _fill(used, need, self.sizes, range(len(used)))
        return () if after is None else (after,)

    def place_first(self, need: int) -> Counts:
        """Return what is in use after the first ``need`` devices of an empty cluster."""
        (after,) = self.place_in_order(self.empty, need)
        return after


def _fill(used: Counts, need: int, sizes: Counts, machines: Iterable[int]) -> Counts | None:
    """Fill these machines one after another; None where they have too little room."""
    after = list(used)
    for at in machines:
        taken = min(need, sizes[at] - used[at])
        after[at] += taken
        need -= taken
    return None if need else tuple(after)


def _scatter(used: Counts, need: int, sizes: Counts) -> Counts | None:
    """Deal one device of each machine with room, in rounds; None where there is too little."""
    room = [size - count for size, count in zip(sizes, used, strict=True)]
    if sum(room) < need:
        return None
    level = _whole_rounds(room, need)
    taken = [min(free, level) for free in room]
    left = need - sum(taken)
    for at in _with_more(room, level):
        if not left:
            break
        taken[at] += 1
        left -= 1
    return tuple(count + more for count, more in zip(used, taken, strict=True))


def _whole_rounds(room: list[int], need: int) -> int:
    """Return how many rounds can be dealt in full."""
    low = 0
    high = max(room)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(free, middle) for free in room) <= need:
            low = middle
        else:
            high = middle - 1
    return low


def _with_more(room: list[int], level: int) -> Iterator[int]:
    return (at for at, free in enumerate(room) if free > level)
