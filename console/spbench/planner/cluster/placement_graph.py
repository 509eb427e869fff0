"""The placement graph: groups are edges between sets of devices in use.

A plan is a path from the empty cluster. On a large cluster, numbers of devices are multiples of a
unit, so that there are few paths; `local_search` then moves single devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spbench.planner.cluster.placement import POLICIES, Counts, DeviceGroup, Placements, Policy


@dataclass(frozen=True, slots=True)
class PlacementGraph:
    """The groups that stages can have, as edges of the placement graph.

    Attributes:
        groups: All groups, those with the most devices in use after them first.
        out_edges: The indices of groups by the devices in use before them.
        unit: The unit of the numbers of devices; 1 if all groups are present.
    """

    groups: tuple[DeviceGroup, ...]
    out_edges: dict[Counts, tuple[int, ...]]
    unit: int


def build_placement_graph(placements: Placements, limit: int, max_stages: int) -> PlacementGraph:
    """Return at most some thousand groups, with all device counts if there are few.

    Up to `limit` groups mix all policies, in the least possible unit of devices. If that is more
    than one device, there are as many more groups of each single policy, in its least unit. There
    are also pipelines of a single policy with the same smaller number of devices in all stages.

    Args:
        placements: The placements of the cluster.
        limit: The most groups of each of these sorts.
        max_stages: The most stages of a pipeline.
    """
    units = _list_units(placements.sizes)
    groups, unit = _find_least_unit(placements, units, limit, POLICIES)
    if unit > 1:
        for policy in POLICIES:
            single_policy_groups, least_unit = _find_least_unit(placements, units, limit, (policy,))
            groups |= single_policy_groups
            for smaller_unit in units:
                if smaller_unit < least_unit and 2 * smaller_unit * max_stages >= sum(
                    placements.sizes
                ):
                    groups.update(
                        _find_reachable_groups(placements, [smaller_unit], limit, (policy,)) or []
                    )
    most_used_first = sorted(groups, key=lambda group: (-sum(group.last), group.first, group.last))
    out_edges: dict[Counts, list[int]] = defaultdict(list)
    for index, group in enumerate(most_used_first):
        out_edges[group.first].append(index)
    edges_by_used = {used: tuple(indices) for used, indices in out_edges.items()}
    return PlacementGraph(tuple(most_used_first), edges_by_used, unit)


def _find_least_unit(
    placements: Placements, units: Sequence[int], max_groups: int, policies: Sequence[Policy]
) -> tuple[set[DeviceGroup], int]:
    """Return at most `max_groups` groups in the least possible unit, and that unit."""
    devices = sum(placements.sizes)
    for unit in units:
        groups = _find_reachable_groups(
            placements, range(unit, devices + 1, unit), max_groups, policies
        )
        if groups is not None:
            return set(groups), unit
    # A single stage can always have all devices.
    return {DeviceGroup(placements.empty, placements.full)}, devices


def _list_units(sizes: Counts) -> list[int]:
    """Return the units to try: divisors of a machine, then more and more machines."""
    largest_machine = max(sizes)
    machines = len(sizes)
    units_within_machine = [
        unit for unit in range(1, largest_machine + 1) if not largest_machine % unit
    ]
    units_of_machines = [largest_machine * 2**power for power in range(1, machines.bit_length())]
    return [*units_within_machine, *units_of_machines]


def _find_reachable_groups(
    placements: Placements,
    device_counts: Sequence[int],
    max_groups: int,
    policies: Sequence[Policy],
) -> list[DeviceGroup] | None:
    """Return all groups of these device counts, rising; None if there are too many."""
    devices = sum(placements.sizes)
    groups: list[DeviceGroup] = []
    visited = {placements.empty}
    unexplored = [placements.empty]
    while unexplored:
        used = unexplored.pop()
        free_devices = devices - sum(used)
        for device_count in device_counts:
            if device_count > free_devices:
                break
            for used_after in _place_by_policies(placements, used, device_count, policies):
                groups.append(DeviceGroup(used, used_after))
                if used_after not in visited:
                    visited.add(used_after)
                    unexplored.append(used_after)
        if len(groups) > max_groups:
            return None
    return groups


def _place_by_policies(
    placements: Placements, used: Counts, device_count: int, policies: Sequence[Policy]
) -> Sequence[Counts]:
    if len(policies) > 1:
        return placements.place_by_each_policy(used, device_count)
    used_after = placements.place_group(used, device_count, policies[0])
    return () if used_after is None else (used_after,)
