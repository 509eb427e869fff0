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
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.scoring import CandidateScores
from spbench_core.schedule.orders import can_interleave

_MAX_ROUNDS = 4
_MAX_GROUPS = 32
# With more micro-batches, a pipeline waits so little at its ends that rounds gain nothing.
_MAX_MICRO_BATCHES = 512
_MAX_STARTS = 6


def make_interleavings(
    scores: CandidateScores, placements: Placements, micro_batches: Sequence[int]
) -> list[tuple[Shape, int]]:
    """Return shapes of two or more rounds, each with a micro-batch size to try.

    They use the groups of the best shapes so far, and groups with equal numbers of devices. The
    cuts give every stage about its group's share of the work. `local_search` then moves the cuts.

    Args:
        scores: The best shapes so far.
        placements: The placements of the cluster.
        micro_batches: The allowed micro-batch sizes, rising.
    """
    best_groups = [shape.groups for shape, _ in scores.best_shapes(_MAX_STARTS)]
    shapes = []
    for groups in dict.fromkeys([*best_groups, *_equal_groups(placements)]):
        for rounds in range(2, _MAX_ROUNDS + 1):
            for size in micro_batches:
                count = scores.micro_batches(size)
                if count <= _MAX_MICRO_BATCHES and can_interleave(count, len(groups)):
                    shape = _cut_evenly(scores.cost_model, groups, rounds, size)
                    if shape is not None:
                        shapes.append((shape, size))
    return shapes


def _equal_groups(placements: Placements) -> Iterator[tuple[DeviceGroup, ...]]:
    """Yield groups of equal numbers of devices that use all devices, by each policy."""
    devices = sum(placements.sizes)
    for count in range(2, min(devices, _MAX_GROUPS) + 1):
        if devices % count:
            continue
        for policy in POLICIES:
            groups = []
            used = placements.empty
            for _ in range(count):
                after = placements.place_group(used, devices // count, policy)
                if after is None:  # such as a policy that only takes machines in use
                    after = placements.place_group(used, devices // count, "scatter")
                assert after is not None, "there are enough devices"
                groups.append(DeviceGroup(used, after))
                used = after
            yield tuple(groups)


def _cut_evenly(
    cost_model: CostModel, groups: tuple[DeviceGroup, ...], rounds: int, micro_batch: int
) -> Shape | None:
    """Return the shape with about equal work; None if there are too few states."""
    states = len(cost_model.states)
    stages = rounds * len(groups)
    if not 1 < len(groups) <= stages <= states:
        return None
    work = cost_model.sharing(groups[0], micro_batch).work
    done = [
        forward + backward for forward, backward in zip(work.forward, work.backward, strict=True)
    ]
    speeds = [_group_speed(cost_model, group, micro_batch) for group in groups] * rounds
    ends = []
    last = 0
    for index, share in enumerate(accumulate(speeds[:-1]), start=1):
        target = share / sum(speeds) * done[-1]
        end = bisect_left(done, target)
        if target - done[end - 1] < done[end] - target:
            end -= 1
        # Each stage has a state, and one state is left for each later stage.
        last = min(max(end, last + 1), states - (stages - index))
        ends.append(last)
    return Shape((*ends, states), groups)


def _group_speed(cost_model: CostModel, group: DeviceGroup, micro_batch: int) -> float:
    """Return the micro-batches of the whole model that a group runs per second."""
    sharing = cost_model.sharing(group, micro_batch)
    return sharing.speed / sharing.work.total


def count_shapes(states: int, graph: PlacementGraph) -> int:
    """Return the number of shapes that `enumerate_shapes` yields."""
    paths: dict[Counts, Counter[int]] = defaultdict(Counter)  # by devices in use, then by stages
    total = 0
    # Groups are sorted by the devices in use after them, falling.
    for group in reversed(graph.groups):
        before = paths[group.first] if any(group.first) else Counter({0: 1})
        for groups, count in before.items():
            if groups < states:
                paths[group.last][groups + 1] += count
                total += count * sum(
                    math.comb(states - 1, stages - 1)
                    for stages in _stage_counts(groups + 1, states)
                )
    return total


def enumerate_shapes(states: int, graph: PlacementGraph) -> Iterator[Shape]:
    """Yield all shapes: all paths through the graph with all cuts and rounds."""
    empty = (0,) * len(graph.groups[0].first)
    for groups in _enumerate_paths(graph, empty, states):
        for stages in _stage_counts(len(groups), states):
            for cuts in combinations(range(1, states), stages - 1):
                yield Shape((*cuts, states), groups)


def _stage_counts(groups: int, states: int) -> range:
    """Return the possible numbers of stages: equal for all groups, one for one group."""
    return range(groups, (states if groups > 1 else 1) + 1, groups)


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
