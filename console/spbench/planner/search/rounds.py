"""Shapes for the schedule ``interleaved``: each group has several virtual stages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from spbench.planner.cluster.placement import POLICIES, DeviceGroup, Placements
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.scoring import CandidateScores
from spbench_core.schedule.orders import can_interleave

_MOST_ROUNDS = 4
_MOST_GROUPS = 32
_MOST_MICRO_BATCHES = 512
"""Beyond which a pipeline waits so little at its ends that rounds gain nothing."""
_STARTS = 6


def make_interleavings(
    scores: CandidateScores, placements: Placements, micro_batches: Sequence[int]
) -> list[tuple[Shape, int]]:
    """Return shapes of two rounds and more, and the micro-batch sizes to try them with.

    On groups of the best shapes so far, and on groups with as many devices each; cut so that
    every stage has about its group's share of the work. `local_search` then moves the cuts.

    Args:
        scores: Has the best shapes so far.
        placements: Of its cluster.
        micro_batches: The sizes that are allowed, rising.
    """
    starts = [shape.groups for shape, _ in scores.best_shapes(_STARTS)]
    every = dict.fromkeys([*starts, *_even(placements)])
    found = []
    for groups in every:
        for rounds in range(2, _MOST_ROUNDS + 1):
            for size in micro_batches:
                count = scores.micro_batches(size)
                if count <= _MOST_MICRO_BATCHES and can_interleave(count, len(groups)):
                    shape = _shape(scores.cost_model, groups, rounds, size)
                    found += [(shape, size)] if shape else []
    return found


def _even(placements: Placements) -> Iterator[tuple[DeviceGroup, ...]]:
    """Yield groups of as many devices each that take all devices."""
    devices = sum(placements.sizes)
    for count in range(2, min(devices, _MOST_GROUPS) + 1):
        if devices % count:
            continue
        for policy in POLICIES:
            groups = []
            used = placements.empty
            for _ in range(count):
                after = placements.place_group(used, devices // count, policy)
                if after is None:  # as of a policy that takes machines in use alone
                    after = placements.place_group(used, devices // count, "scatter")
                assert after is not None, "there are as many devices"
                groups.append(DeviceGroup(used, after))
                used = after
            yield tuple(groups)


def _shape(
    cost_model: CostModel, groups: tuple[DeviceGroup, ...], rounds: int, micro_batch: int
) -> Shape | None:
    """Return the shape whose stages have about their share; None where states are too few."""
    states = len(cost_model.states)
    stages = rounds * len(groups)
    if not 1 < len(groups) <= stages <= states:
        return None
    work = cost_model.sharing(groups[0], micro_batch).work
    done = [a + b for a, b in zip(work.forward, work.backward, strict=True)]
    speeds = [_speed(cost_model, group, micro_batch) for group in groups] * rounds
    ends = []
    last = 0
    for at, share in enumerate(accumulate(speeds[:-1]), start=1):
        wanted = share / sum(speeds) * done[-1]
        end = bisect_left(done, wanted)
        if wanted - done[end - 1] < done[end] - wanted:
            end -= 1
        last = min(max(end, last + 1), states - (stages - at))
        ends.append(last)
    return Shape((*ends, states), groups)


def _speed(cost_model: CostModel, group: DeviceGroup, micro_batch: int) -> float:
    """Return how fast a group runs the model."""
    sharing = cost_model.sharing(group, micro_batch)
    return sharing.speed / sharing.work.total
