"""The search of mode ``best`` for cuts and groups under bounds on the period.

A step takes about the path of one micro-batch through all stages and back, plus ``M - 1`` periods.
The period is the time in which the slowest stage, or a round trip that must be waited for, lets one
more micro-batch through. So the search minimises the path for each of several bounds on the period.
It tries all micro-batch sizes with few groups first, then all groups near the best bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.candidates import BoundedShape, Shape, SizedShape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.scoring import CandidateScores
from spbench.planner.search.shortest_paths import (
    LEEWAY,
    CostArrays,
    SearchGraph,
    ShortestPathDP,
)
from spbench.planner.search.stage_messages import compute_messages
from spbench_core.schedule.orders import count_in_flight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# `local_search` then moves the cuts to the other states.
_MAX_ENDS = 64
_MAX_SIZES = 12
_MAX_BOUNDS = 8
_MIN_BOUND_RATIO = 1.03
"""The least ratio of a bound to the one before it."""
_REFINEMENTS = ((1.5, 3), (1.18, 1))
"""Second and third searches: the ratio of the bounds around a point, and the number of points."""
_NEAR_BEST = 1.15
"""The step time over the shortest one up to which a point is refined."""


class _SearchPoint(NamedTuple):
    """The best shape of a search: step time, micro-batch size and bound on the period."""

    step_s: float
    micro_batch_size: int
    bound_s: float


class PeriodSearch:
    """The searches for one plan.

    Args:
        scores: Receives the shapes that are found.
        all_groups: The groups of the second and third searches.
        few_groups: The groups of the first search.
        sizes: The allowed micro-batch sizes, rising.
    """

    def __init__(
        self,
        scores: CandidateScores,
        all_groups: PlacementGraph,
        few_groups: PlacementGraph,
        sizes: list[int],
    ) -> None:
        self._scores = scores
        self._cost_model = scores.cost_model
        self._all = SearchGraph(all_groups)
        self._few = SearchGraph(few_groups)
        self._sizes = _spread_evenly(sizes, _MAX_SIZES)
        self._ends = _choose_ends(scores.cost_model, _MAX_ENDS)

    def run(self) -> None:
        """Search at all micro-batch sizes, then again near the best points."""
        cost_model = self._cost_model
        empty = (0,) * len(cost_model.cluster.sizes)
        state_count = len(cost_model.states)
        graphs = self._all.placement_graph, self._few.placement_graph
        for size in self._sizes:
            groups = {graph.groups[index] for graph in graphs for index in graph.out_edges[empty]}
            largest_first = sorted(groups, key=lambda group: -group.size)
            self._scores.offer_all(
                SizedShape(Shape((state_count,), (group,)), size) for group in largest_first
            )
        if state_count == 1:
            return

        points = [point for size in self._sizes for point in self._search_size(size)]
        for bound_ratio, max_points in _REFINEMENTS:
            points.sort()
            near_best = [point for point in points if point.step_s <= points[0].step_s * _NEAR_BEST]
            points = [
                refined
                for point in near_best[:max_points]
                for refined in self._search_near(self._all, point, bound_ratio)
            ]

    def _search_size(self, micro_batch_size: int) -> list[_SearchPoint]:
        """Search all bounds at a micro-batch size with few groups; return the best point."""
        low_s, high_s = self._find_period_range_s(micro_batch_size)
        if low_s > high_s:
            return []
        centre = _SearchPoint(0.0, micro_batch_size, math.sqrt(low_s * high_s))
        return self._search_near(self._few, centre, high_s / low_s)

    def _find_period_range_s(self, micro_batch_size: int) -> tuple[float, float]:
        """Return the least possible period and the longest of a better step, in seconds."""
        model_s = self._cost_model.get_work(micro_batch_size).total_s
        micro_batches = self._scores.count_micro_batches(micro_batch_size)
        speeds = [kind.speed for kind in self._cost_model.cluster.kinds]
        low_s = model_s / sum(speeds)
        high_s = model_s / min(speeds)
        if micro_batches > 1:
            high_s = min(high_s, self._scores.step_s / (micro_batches - 1))
        return low_s, high_s

    def _search_near(
        self, graph: SearchGraph, centre: _SearchPoint, bound_ratio: float
    ) -> list[_SearchPoint]:
        """Search with bounds around a point; return the best point, if any."""
        _, micro_batch_size, bound_s = centre
        low_s, high_s = self._find_period_range_s(micro_batch_size)
        low_s = max(low_s, bound_s / bound_ratio)
        high_s = min(high_s, bound_s * bound_ratio)
        if low_s > high_s:
            return []
        bounds_s = _space_bounds(low_s, high_s * 1.001)
        if self._scores.count_micro_batches(micro_batch_size) == 1:
            bounds_s = bounds_s[-1:]
        shapes = BoundedSearch(self._cost_model, graph, micro_batch_size, self._ends).search(
            bounds_s
        )
        self._scores.offer_all(SizedShape(shape, micro_batch_size) for _, shape in shapes)
        points = [
            _SearchPoint(
                self._scores.get_least_bound(shape, micro_batch_size), micro_batch_size, found_bound
            )
            for found_bound, shape in shapes
        ]
        return [min(points)] if points else []


class BoundedSearch:
    """The search at one micro-batch size.

    Each bound is first searched as if all stages fitted, and under ``1f1b-deep``, where stages wait
    least for round trips. If the shape fits, and no round trip under ``1f1b`` exceeds the bound
    either, then no schedule allows a shorter path. Otherwise the bound is searched again: with the
    real memory, or under ``1f1b``.

    Args:
        cost_model: The costs.
        graph: The groups that stages can have.
        micro_batch_size: Samples of a micro-batch.
        ends: The states before which a stage may end, rising.
    """

    def __init__(
        self, cost_model: CostModel, graph: SearchGraph, micro_batch_size: int, ends: Sequence[int]
    ) -> None:
        self._cost_model = cost_model
        self._micro_batch_size = micro_batch_size
        self._costs = CostArrays(cost_model, graph, micro_batch_size, ends)

    def search(self, bounds: Floats) -> list[BoundedShape]:
        """Return the bounds that allow a pipeline, with the shapes of the shortest paths."""
        import numpy as np

        shapes = []
        too_large = []
        too_long = []
        for bound, shape in self._find_shapes(bounds, deep=True, any_memory=True):
            if not self._fits(shape):
                too_large.append(bound)
                continue
            shapes.append(BoundedShape(bound, shape))
            if self._waits_for_round_trips(shape, bound):
                too_long.append(bound)
        shapes += self._find_shapes(np.array(too_large), deep=True, any_memory=False)
        shapes += self._find_shapes(np.array(too_large), deep=False, any_memory=False)
        shapes += self._find_shapes(np.array(too_long), deep=False, any_memory=True)
        return shapes

    def _find_shapes(self, bounds: Floats, deep: bool, any_memory: bool) -> list[BoundedShape]:
        if not len(bounds):
            return []
        return ShortestPathDP(self._costs, bounds, deep, any_memory).find_shapes()

    def _fits(self, shape: Shape) -> bool:
        """Return whether a shape fits under ``1f1b-deep`` without recomputation."""
        if self._costs.tables.always_fits:
            return True
        for index, (start, end, group) in enumerate(shape.spans):
            in_flight = count_in_flight(
                "1f1b-deep", index, len(shape.ends), self._costs.micro_batches
            )
            stage = self._cost_model.get_stage_cost(group, start, end, self._micro_batch_size)
            if stage.must_recompute(in_flight) is not False:
                return False
        return True

    def _waits_for_round_trips(self, shape: Shape, bound_s: float) -> bool:
        """Return whether round trips under ``1f1b`` take longer than a bound."""
        send_s = compute_messages(self._cost_model, shape, self._micro_batch_size).send_s
        excess_s = 0.0
        for (start, end, group), message_s in zip(
            reversed(shape.spans), reversed(send_s), strict=True
        ):
            stage = self._cost_model.get_stage_cost(group, start, end, self._micro_batch_size)
            excess_s = (
                max(excess_s + 2.0 * message_s, 0.0) + stage.forward_s + stage.backward_s - bound_s
            )
            if excess_s > LEEWAY * bound_s:
                return True
        return False


def _space_bounds(low_s: float, high_s: float) -> Floats:
    """Return bounds in a range, with a ratio of at least `_MIN_BOUND_RATIO`."""
    import numpy as np

    steps = int(math.log(max(high_s / low_s, 1.0)) / math.log(_MIN_BOUND_RATIO))
    return np.geomspace(low_s, high_s, min(_MAX_BOUNDS, 2 + steps))


def _spread_evenly(numbers: list[int], limit: int) -> list[int]:
    """Return at most `limit` of rising values, evenly spaced by index."""
    if len(numbers) <= limit:
        return numbers
    step = (len(numbers) - 1) / (limit - 1)
    return [numbers[round(index * step)] for index in range(limit)]


def _choose_ends(cost_model: CostModel, limit: int) -> list[int]:
    """Return at most `limit` states before which a stage may end.

    The compute time is divided into equal shares; each share contributes its cheapest cut.
    """
    work = cost_model.get_work(1)
    state_count = len(cost_model.states)
    if state_count <= limit:
        return list(range(1, state_count + 1))
    cheapest_end_by_share: dict[int, int] = {}
    for end in range(1, state_count):
        done_s = work.forward_s[end] + work.backward_s[end]
        share_index = int(done_s / work.total_s * (limit - 1))
        if (
            share_index not in cheapest_end_by_share
            or work.crossing_bytes[end] < work.crossing_bytes[cheapest_end_by_share[share_index]]
        ):
            cheapest_end_by_share[share_index] = end
    return [*sorted(cheapest_end_by_share.values()), state_count]
