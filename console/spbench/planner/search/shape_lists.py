"""Lists of shapes that mode ``best`` tries next to those that its searches find.

These are shapes for the schedule ``interleaved``, in which each group has several virtual stages,
and all shapes of a small problem.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations

from spbench.planner.cluster.placement import POLICIES, Counts, DeviceGroup, Placements
from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.candidates import Shape, SizedShape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.scoring import CandidateScores
from spbench_core.schedule.orders import can_interleave

_MAX_ROUNDS = 4
_MAX_GROUPS = 32
# With more micro-batches, a pipeline waits so little at its ends that rounds gain nothing.
_MAX_MICRO_BATCHES = 512
_MAX_STARTS = 6


def make_interleavings(
    scores: CandidateScores, placements: Placements, micro_batch_sizes: Sequence[int]
) -> list[SizedShape]:
    """Return shapes of two or more rounds, each with a micro-batch size to try.

    They use the groups of the best shapes so far, and groups with equal numbers of devices. The
    cuts give every stage about its group's share of the work. `local_search` then moves the cuts.

    Args:
        scores: The best shapes so far.
        placements: The placements of the cluster.
        micro_batch_sizes: The allowed micro-batch sizes, rising.
    """
    best_groups = [shape.groups for shape, _ in scores.list_best_shapes(_MAX_STARTS)]
    shapes = []
    for groups in dict.fromkeys([*best_groups, *_generate_equal_groups(placements)]):
        for rounds in range(2, _MAX_ROUNDS + 1):
            for size in micro_batch_sizes:
                micro_batch_count = scores.count_micro_batches(size)
                if micro_batch_count <= _MAX_MICRO_BATCHES and can_interleave(
                    micro_batch_count, len(groups)
                ):
                    shape = _cut_evenly(scores.cost_model, groups, rounds, size)
                    if shape is not None:
                        shapes.append(SizedShape(shape, size))
    return shapes


def _generate_equal_groups(placements: Placements) -> Iterator[tuple[DeviceGroup, ...]]:
    """Yield groups of equal numbers of devices that use all devices, by each policy."""
    devices = sum(placements.sizes)
    for group_count in range(2, min(devices, _MAX_GROUPS) + 1):
        if devices % group_count:
            continue
        for policy in POLICIES:
            groups = []
            used = placements.empty
            for _ in range(group_count):
                used_after = placements.place_group(used, devices // group_count, policy)
                if used_after is None:  # such as a policy that only takes machines in use
                    used_after = placements.place_group(used, devices // group_count, "scatter")
                assert used_after is not None, "there are enough devices"
                groups.append(DeviceGroup(used, used_after))
                used = used_after
            yield tuple(groups)


def _cut_evenly(
    cost_model: CostModel, groups: tuple[DeviceGroup, ...], rounds: int, micro_batch_size: int
) -> Shape | None:
    """Return the shape with about equal work; None if there are too few states."""
    state_count = len(cost_model.states)
    stage_count = rounds * len(groups)
    if not 1 < len(groups) <= stage_count <= state_count:
        return None
    work = cost_model.get_sharing(groups[0], micro_batch_size).work
    cumulative_s = [
        forward + backward
        for forward, backward in zip(work.forward_s, work.backward_s, strict=True)
    ]
    stage_speeds = [
        _compute_group_speed(cost_model, group, micro_batch_size) for group in groups
    ] * rounds
    ends = []
    previous_end = 0
    for index, speed_so_far in enumerate(accumulate(stage_speeds[:-1]), start=1):
        target_s = speed_so_far / sum(stage_speeds) * cumulative_s[-1]
        end = bisect_left(cumulative_s, target_s)
        if target_s - cumulative_s[end - 1] < cumulative_s[end] - target_s:
            end -= 1
        # Each stage has a state, and one state is left for each later stage.
        previous_end = min(max(end, previous_end + 1), state_count - (stage_count - index))
        ends.append(previous_end)
    return Shape((*ends, state_count), groups)


def _compute_group_speed(cost_model: CostModel, group: DeviceGroup, micro_batch_size: int) -> float:
    """Return the micro-batches of the whole model that a group runs per second."""
    sharing = cost_model.get_sharing(group, micro_batch_size)
    return sharing.speed / sharing.work.total_s


def count_shapes(state_count: int, graph: PlacementGraph) -> int:
    """Return the number of shapes that `enumerate_shapes` yields."""
    path_count_by_used_and_groups: dict[Counts, Counter[int]] = defaultdict(Counter)
    shape_count = 0
    # Groups with the most devices in use come first, and paths grow from an empty cluster.
    for group in reversed(graph.groups):
        count_by_groups = (
            path_count_by_used_and_groups[group.first] if any(group.first) else Counter({0: 1})
        )
        for group_count, path_count in count_by_groups.items():
            if group_count < state_count:
                path_count_by_used_and_groups[group.last][group_count + 1] += path_count
                shape_count += path_count * sum(
                    math.comb(state_count - 1, stages - 1)
                    for stages in _list_stage_counts(group_count + 1, state_count)
                )
    return shape_count


def enumerate_shapes(state_count: int, graph: PlacementGraph) -> Iterator[Shape]:
    """Yield all shapes: all paths through the graph with all cuts and rounds."""
    no_devices = (0,) * len(graph.groups[0].first)
    for groups in _enumerate_paths(graph, no_devices, state_count):
        for stages in _list_stage_counts(len(groups), state_count):
            for cuts in combinations(range(1, state_count), stages - 1):
                yield Shape((*cuts, state_count), groups)


def _list_stage_counts(group_count: int, state_count: int) -> range:
    """Return the possible numbers of stages: equal for all groups, one for one group."""
    return range(group_count, (state_count if group_count > 1 else 1) + 1, group_count)


def _enumerate_paths(
    graph: PlacementGraph, used: Counts, limit: int
) -> Iterator[tuple[DeviceGroup, ...]]:
    """Yield all paths of up to `limit` groups that start with these devices in use."""
    if not limit:
        return
    for index in graph.out_edges.get(used, ()):
        group = graph.groups[index]
        yield (group,)
        for path in _enumerate_paths(graph, group.last, limit - 1):
            yield (group, *path)
