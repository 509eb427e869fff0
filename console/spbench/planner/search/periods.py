"""The outer search of mode ``best``: micro-batch sizes, and the periods near which to look."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.bounded import BoundedSearch
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.scoring import CandidateScores
from spbench.planner.search.shortest_paths import SearchGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MOST_ENDS = 64
"""States before which a stage may end; `local_search` then moves the cuts to the others."""
_MOST_SIZES = 12
_BOUNDS = 8
_NEXT = 1.03
"""The least ratio of a bound to the one before it."""
_AGAIN = ((1.5, 3), (1.18, 1))
"""The second and the third look: the ratio by which bounds go around a place, and their places."""
_CLOSE = 1.15
"""The factor by which a step may be longer than the shortest one to be looked at again."""


class _Place(NamedTuple):
    """A find of a search: its step time, micro-batch size and bound on the period."""

    step_s: float
    micro_batch: int
    bound_s: float


class PeriodSearch:
    """The searches for one plan.

    Args:
        scores: Takes what they find.
        all_groups: The groups of the second look.
        few_groups: Those of the first.
        sizes: The micro-batch sizes that are allowed, rising.
    """

    def __init__(
        self,
        scores: CandidateScores,
        all_groups: PlacementGraph,
        few_groups: PlacementGraph,
        sizes: list[int],
    ) -> None:
        self._scores = scores
        self._prices = scores.cost_model
        self._all = SearchGraph(all_groups)
        self._few = SearchGraph(few_groups)
        self._sizes = _spread(sizes, _MOST_SIZES)
        self._ends = _ends(scores.cost_model, _MOST_ENDS)

    def run(self) -> None:
        """Search at all sizes, and again near the best places."""
        cost_model = self._prices
        empty = (0,) * len(cost_model.cluster.sizes)
        last = len(cost_model.states)
        for size in self._sizes:
            graphs = self._all.placements, self._few.placements
            groups = {graph.groups[at] for graph in graphs for at in graph.out_edges[empty]}
            single = sorted(groups, key=lambda group: -group.size)
            self._scores.offer_all((Shape((last,), (group,)), size) for group in single)
        if last == 1:
            return
        places = [place for size in self._sizes for place in self._first_look(size)]
        for ratio, most in _AGAIN:
            places.sort()
            close = [place for place in places if place.step_s <= places[0].step_s * _CLOSE]
            places = [
                found for place in close[:most] for found in self._look(self._all, place, ratio)
            ]

    def _first_look(self, size: int) -> list[_Place]:
        """Return the best place at a size."""
        low, high = self._periods(size)
        if low > high:
            return []
        return self._look(self._few, _Place(0.0, size, math.sqrt(low * high)), high / low)

    def _periods(self, size: int) -> tuple[float, float]:
        """Return the least period that there can be, and the longest one of a better step."""
        total = self._prices.work(size).total
        count = self._scores.micro_batches(size)
        devices = [kind.speed for kind in self._prices.cluster.kinds]
        low = total / sum(devices)
        high = total / min(devices)
        if count > 1:
            high = min(high, self._scores.step_s / (count - 1))
        return low, high

    def _look(self, roads: SearchGraph, place: _Place, ratio: float) -> list[_Place]:
        """Search with bounds around a place; return the best place found."""
        _, size, middle = place
        low, high = self._periods(size)
        low, high = max(low, middle / ratio), min(high, middle * ratio)
        if low > high:
            return []
        bounds = _between(low, high * 1.001)
        if self._scores.micro_batches(size) == 1:
            bounds = bounds[-1:]
        found = BoundedSearch(self._prices, roads, size, self._ends).search(bounds)
        self._scores.offer_all((shape, size) for _, shape in found)
        places = [
            _Place(self._scores.least_bound(shape, size), size, bound) for bound, shape in found
        ]
        return [min(places)] if places else []


def _between(low: float, high: float) -> Floats:
    """Return bounds that rise from one to another, no closer than is of use."""
    import numpy as np

    count = min(_BOUNDS, 2 + int(math.log(max(high / low, 1.0)) / math.log(_NEXT)))
    return np.geomspace(low, high, count)


def _spread(values: list[int], most: int) -> list[int]:
    """Return at most so many of rising values, spread evenly by their order."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(at * step)] for at in range(most)]


def _ends(cost_model: CostModel, most: int) -> list[int]:
    """Return the states before which a stage may end: of each share of the time the cheapest."""
    work = cost_model.work(1)
    last = len(cost_model.states)
    if last <= most:
        return list(range(1, last + 1))
    found: dict[int, int] = {}
    for end in range(1, last):
        done = work.forward[end] + work.backward[end]
        part = int(done / work.total * (most - 1))
        if part not in found or work.crossing[end] < work.crossing[found[part]]:
            found[part] = end
    return [*sorted(found.values()), last]
