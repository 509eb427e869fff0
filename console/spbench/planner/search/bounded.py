"""The search of mode ``best`` for cuts and groups, with bounds on the period of micro-batches.

A step takes about one micro-batch's way through all stages and back, and ``M - 1`` times the
period in which the slowest stage, or a round trip that must be waited for, lets one more through.
So for each of several bounds on the period the way is made as short as can be.

Each bound is first searched as if there were memory for anything, and under ``1f1b-deep``, whose
stages wait least for round trips. Where what is found so fits, and no round trip under ``1f1b``
exceeds the bound either, no schedule allows a shorter way. Else the bound is searched again: with
the memory that there is, or under ``1f1b``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.shortest_paths import LEEWAY, CostArrays, SearchGraph, ShortestPathDP
from spbench.planner.search.stage_messages import compute_messages
from spbench_core.schedule.orders import stage_in_flight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class BoundedSearch:
    """The search at one micro-batch size.

    Args:
        cost_model: The costs.
        roads: The groups that stages can have.
        micro_batch: Samples.
        ends: The states before which a stage may end, rising.
    """

    def __init__(
        self, cost_model: CostModel, roads: SearchGraph, micro_batch: int, ends: Sequence[int]
    ) -> None:
        self._prices = cost_model
        self._micro_batch = micro_batch
        self._costs = CostArrays(cost_model, roads, micro_batch, ends)

    def search(self, bounds: Floats) -> list[tuple[float, Shape]]:
        """Return each bound that allows any shape, and the shapes with the shortest way."""
        import numpy as np

        found = []
        too_large = []
        too_long = []
        for bound, shape in self._ways(bounds, deep=True, any_memory=True):
            if not self._fits(shape):
                too_large.append(bound)
                continue
            found.append((bound, shape))
            if self._waits(shape, bound):
                too_long.append(bound)
        found += self._ways(np.array(too_large), deep=True, any_memory=False)
        found += self._ways(np.array(too_large), deep=False, any_memory=False)
        found += self._ways(np.array(too_long), deep=False, any_memory=True)
        return found

    def _ways(self, bounds: Floats, deep: bool, any_memory: bool) -> list[tuple[float, Shape]]:
        if not len(bounds):
            return []
        return ShortestPathDP(self._costs, bounds, deep, any_memory).shapes()

    def _fits(self, shape: Shape) -> bool:
        """Return whether a shape fits under ``1f1b-deep`` and need not recompute."""
        if self._costs.tables.ample:
            return True
        for at, (start, end, group) in enumerate(shape.spans):
            kept = stage_in_flight("1f1b-deep", at, len(shape.ends), self._costs.count)
            stage = self._prices.stage_cost(group, start, end, self._micro_batch)
            if stage.must_recompute(kept) is not False:
                return False
        return True

    def _waits(self, shape: Shape, bound: float) -> bool:
        """Return whether rounds of stages under ``1f1b`` take longer than a bound."""
        sends = compute_messages(self._prices, shape, self._micro_batch).send_s
        over = 0.0
        for (start, end, group), send in zip(reversed(shape.spans), reversed(sends), strict=True):
            stage = self._prices.stage_cost(group, start, end, self._micro_batch)
            over = max(over + 2.0 * send, 0.0) + stage.forward_s + stage.backward_s - bound
            if over > LEEWAY * bound:
                return True
        return False
