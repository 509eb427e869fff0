"""Which devices the stages can have: a graph of what is in use before and after each of them.

A stage goes from what is in use before it to what is in use after it, and a plan is a way from
the empty cluster. On a large cluster stages have whole multiples of a unit of devices, so that
there are few ways; `polish` then moves single devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spbench.planner.placement import Counts, Group, Placements


@dataclass(frozen=True, slots=True)
class Roads:
    """The groups that stages can have.

    Attributes:
        groups: All of them, those with the most devices in use after them first.
        out: By what is in use before it, the indices of the groups.
        unit: What the numbers of devices are multiples of; 1 if there are all groups.
    """

    groups: tuple[Group, ...]
    out: dict[Counts, tuple[int, ...]]
    unit: int


def roads(placements: Placements, most: int, longest: int) -> Roads:
    """Return about ``most`` groups, or as few as there can be, in the least possible unit.

    Among them are those of pipelines whose stages all have the same smaller number of devices.

    Args:
        placements: Of the cluster.
        most: Groups of multiples of the unit; there are at most half as many others of each size.
        longest: The most stages of a pipeline.
    """
    devices = sum(placements.sizes)
    units = _units(placements.sizes)
    found, whole = None, devices
    for unit in units:
        found, whole = _walk(placements, range(unit, devices + 1, unit), most), unit
        if found is not None:
            break
    if found is None:  # one stage can always have all devices, in one way
        found, whole = [Group(placements.empty, placements.full)], devices
    groups = set(found)
    for unit in units:
        if unit < whole and 2 * unit * longest >= devices:
            groups.update(_walk(placements, [unit], most // 2) or [])
    return _linked(sorted(groups, key=lambda each: (-sum(each.last), each.first, each.last)), whole)


def _units(sizes: Counts) -> list[int]:
    """Return the units to try: what divides a machine, then more and more machines."""
    largest, machines = max(sizes), len(sizes)
    within = [unit for unit in range(1, largest + 1) if not largest % unit]
    several = [largest * 2**power for power in range(1, machines.bit_length())]
    return [*within, *several]


def _walk(placements: Placements, needs: Sequence[int], most: int) -> list[Group] | None:
    """Return all groups of these numbers of devices, rising; None where there are too many."""
    devices = sum(placements.sizes)
    groups: list[Group] = []
    seen, waiting = {placements.empty}, [placements.empty]
    while waiting:
        used = waiting.pop()
        free = devices - sum(used)
        for need in needs:
            if need > free:
                break
            for after in placements.following(used, need):
                groups.append(Group(used, after))
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        if len(groups) > most:
            return None
    return groups


def _linked(groups: list[Group], unit: int) -> Roads:
    out: dict[Counts, list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        out[group.first].append(at)
    return Roads(tuple(groups), {used: tuple(found) for used, found in out.items()}, unit)
