"""The placement graph: an edge is a group of devices, from those in use before to those after.

A stage goes from what is in use before it to what is in use after it, and a plan is a way from
the empty cluster. On a large cluster stages have whole multiples of a unit of devices, so that
there are few ways; `local_search` then moves single devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spbench.planner.cluster.placement import POLICIES, Counts, DeviceGroup, Placements, Policy


@dataclass(frozen=True, slots=True)
class PlacementGraph:
    """The edges of the placement graph: the groups that stages can have.

    Attributes:
        groups: All of them, those with the most devices in use after them first.
        out: By what is in use before it, the indices of the groups.
        unit: What the numbers of devices are multiples of; 1 if there are all groups.
    """

    groups: tuple[DeviceGroup, ...]
    out_edges: dict[Counts, tuple[int, ...]]
    unit: int


def build_placement_graph(placements: Placements, most: int, longest: int) -> PlacementGraph:
    """Return some thousand groups at most, with all numbers of devices if there are few.

    Up to ``most`` groups are of all policies, in the least possible unit of devices. Where that
    is not a single device, there are as many more of each policy alone, in its least unit; and
    of pipelines with one policy whose stages all have the same smaller number of devices.

    Args:
        placements: Of the cluster.
        most: Groups of each of these sorts.
        longest: The most stages of a pipeline.
    """
    units = _units(placements.sizes)
    groups, unit = _least_unit(placements, units, most, POLICIES)
    if unit > 1:
        for policy in POLICIES:
            found, least = _least_unit(placements, units, most, (policy,))
            groups |= found
            for same in units:
                if same < least and 2 * same * longest >= sum(placements.sizes):
                    groups.update(_walk(placements, [same], most, (policy,)) or [])
    return _linked(sorted(groups, key=lambda each: (-sum(each.last), each.first, each.last)), unit)


def _least_unit(
    placements: Placements, units: Sequence[int], most: int, policies: Sequence[Policy]
) -> tuple[set[DeviceGroup], int]:
    """Return the groups in the least unit that makes few of them, and that unit."""
    devices = sum(placements.sizes)
    for unit in units:
        found = _walk(placements, range(unit, devices + 1, unit), most, policies)
        if found is not None:
            return set(found), unit
    return {DeviceGroup(placements.empty, placements.full)}, devices  # one stage can have them all


def _units(sizes: Counts) -> list[int]:
    """Return the units to try: what divides a machine, then more and more machines."""
    largest = max(sizes)
    machines = len(sizes)
    within = [unit for unit in range(1, largest + 1) if not largest % unit]
    several = [largest * 2**power for power in range(1, machines.bit_length())]
    return [*within, *several]


def _walk(
    placements: Placements, needs: Sequence[int], most: int, policies: Sequence[Policy]
) -> list[DeviceGroup] | None:
    """Return all groups of these numbers of devices, rising; None where there are too many."""
    devices = sum(placements.sizes)
    groups: list[DeviceGroup] = []
    seen = {placements.empty}
    waiting = [placements.empty]
    while waiting:
        used = waiting.pop()
        free = devices - sum(used)
        for need in needs:
            if need > free:
                break
            for after in _after(placements, used, need, policies):
                groups.append(DeviceGroup(used, after))
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        if len(groups) > most:
            return None
    return groups


def _after(
    placements: Placements, used: Counts, need: int, policies: Sequence[Policy]
) -> Sequence[Counts]:
    if len(policies) > 1:
        return placements.place_by_each_policy(used, need)
    after = placements.place_group(used, need, policies[0])
    return () if after is None else (after,)


def _linked(groups: list[DeviceGroup], unit: int) -> PlacementGraph:
    out: dict[Counts, list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        out[group.first].append(at)
    return PlacementGraph(tuple(groups), {used: tuple(found) for used, found in out.items()}, unit)
