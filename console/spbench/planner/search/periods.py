"""The outer search of mode ``best``: micro-batch sizes, and the periods near which to look."""

from __future__ import annotations

import math
from typing import NamedTuple

from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.bounded import Bounded, Roads
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.scoring import Scores

_MOST_ENDS = 64
"""States before which a stage may end; `local_search` then moves the cuts to the others."""
_MOST_SIZES = 12
_BOUNDS = 8
_AGAIN = 3
"""Micro-batch sizes and schedules that are looked at again."""
_CLOSE = 1.15
"""How much longer than the shortest one a step may be to be looked at again."""


class _Place(NamedTuple):
    """A find of a search: its step time, micro-batch size, schedule and bound on the period."""

    step_s: float
    micro_batch: int
    deep: bool
    bound_s: float


class Search:
    """The searches for one plan.

    Args:
        scores: Takes what they find.
        all_groups: The groups of the second look.
        few_groups: Those of the first.
        sizes: The micro-batch sizes that are allowed, rising.
    """

    def __init__(
        self,
        scores: Scores,
        all_groups: PlacementGraph,
        few_groups: PlacementGraph,
        sizes: list[int],
    ) -> None:
        self._scores, self._prices = scores, scores.cost_model
        self._all, self._few = Roads(all_groups), Roads(few_groups)
        self._sizes = _spread(sizes, _MOST_SIZES)
        self._ends = _ends(scores.cost_model, _MOST_ENDS)

    def run(self) -> None:
        """Search at all sizes, and again near the best places."""
        cost_model = self._prices
        empty = (0,) * len(cost_model.cluster.sizes)
        last = len(cost_model.states)
        for size in self._sizes:
            graphs = self._all.graph, self._few.graph
            groups = {graph.groups[at] for graph in graphs for at in graph.out[empty]}
            single = sorted(groups, key=lambda group: -sum(group.held))
            self._scores.offer_all((Shape((last,), (group,)), size) for group in single)
        if last == 1:
            return
        places = [place for size in self._sizes for place in self._first_look(size)]
        ratio = 1.5
        for _ in range(2):
            places.sort()
            close = [place for place in places if place.step_s <= places[0].step_s * _CLOSE]
            places = [
                found for place in close[:_AGAIN] for found in self._look(self._all, place, ratio)
            ]
            ratio **= 0.4

    def _first_look(self, size: int) -> list[_Place]:
        """Return the best place at a size under each schedule that makes a difference."""
        cost_model = self._prices
        count = self._scores.micro_batches(size)
        devices = [kind.speed for kind in cost_model.cluster.kinds]
        low = cost_model.single_s([size]) / count / sum(devices)
        high = cost_model.work(size).total / min(devices)
        if count > 1 and math.isfinite(self._scores.step_s):
            high = min(high, self._scores.step_s / (count - 1))
        if low > high:
            return []
        middle = math.sqrt(low * high)
        return [
            place
            for deep in ((True,) if self._ample(size) else (False, True))
            for place in self._look(
                self._few, _Place(0.0, size, deep, middle), math.sqrt(high / low) * 1.001
            )
        ]

    def _ample(self, size: int) -> bool:
        """Return whether any stage of any plan fits, so that more in flight does no harm."""
        cost_model = self._prices
        last = len(cost_model.states)
        most = 2 * min(last, cost_model.cluster.device_count)
        kinds = {kind.memory_bytes for kind in cost_model.cluster.kinds} - {None}
        work = cost_model.work(size)
        peak = cost_model.memory(work, 0, last, False).peak(most)
        return all(memory is None or peak <= memory for memory in kinds)

    def _look(self, roads: Roads, place: _Place, ratio: float) -> list[_Place]:
        """Search with bounds around a place; return the best place found."""
        import numpy as np

        _, size, deep, bound = place
        bounds = np.geomspace(bound / ratio, bound * ratio, _BOUNDS)
        if self._scores.micro_batches(size) == 1:
            bounds = bounds[-1:]
        found = Bounded(self._prices, roads, size, deep, self._ends).search(bounds)
        self._scores.offer_all((shape, size) for _, shape in found)
        places = [
            _Place(self._scores.least(shape, size), size, deep, bound) for bound, shape in found
        ]
        return [min(places)] if places else []


def _spread(values: list[int], most: int) -> list[int]:
    """Return at most so many of rising values, spread evenly by their order."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(at * step)] for at in range(most)]


def _ends(cost_model: CostModel, most: int) -> list[int]:
    """Return the states before which a stage may end: of each share of the time the cheapest."""
    work, last = cost_model.work(1), len(cost_model.states)
    if last <= most:
        return list(range(1, last + 1))
    found: dict[int, int] = {}
    for end in range(1, last):
        done = work.forward[end] + work.backward[end]
        part = int(done / work.total * (most - 1))
        if part not in found or work.crossing[end] < work.crossing[found[part]]:
            found[part] = end
    return [*sorted(found.values()), last]
