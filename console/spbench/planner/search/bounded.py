"""The search of mode ``best`` for cuts and groups, with bounds on the period of micro-batches.

A step takes about one micro-batch's way through all stages and back, and ``M - 1`` times the
period in which the slowest stage, or a round trip that must be waited for, lets one more through.
So for each of several bounds on the period the way is made as short as can be.

Each bound is first searched as if there were memory for anything, and under ``1f1b-deep``, whose
stages wait least for round trips. Where what is found so fits, no schedule allows a shorter way;
else the bound is searched under ``1f1b`` and ``1f1b-deep`` with the memory that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.shortest_ways import Roads, ShortestWays, StageCosts
from spbench_core.schedule.orders import stage_in_flight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Bounded:
    """The search at one micro-batch size.

    Args:
        cost_model: The costs.
        roads: The groups that stages can have.
        micro_batch: Samples.
        ends: The states before which a stage may end, rising.
    """

    def __init__(
        self, cost_model: CostModel, roads: Roads, micro_batch: int, ends: Sequence[int]
    ) -> None:
        self._prices, self._micro_batch = cost_model, micro_batch
        self._costs = StageCosts(cost_model, roads, micro_batch, ends)

    def search(self, bounds: Floats) -> list[tuple[float, Shape]]:
        """Return each bound that allows any shape, and the shapes with the shortest way."""
        import numpy as np

        found, too_large = [], []
        for bound, shape in ShortestWays(self._costs, bounds, deep=True, any_memory=True).shapes():
            if self._fits(shape):
                found.append((bound, shape))
            else:
                too_large.append(bound)
        if too_large:
            again = np.array(too_large)
            for deep in (False, True):
                found += ShortestWays(self._costs, again, deep, any_memory=False).shapes()
        return found

    def _fits(self, shape: Shape) -> bool:
        """Return whether a shape fits under ``1f1b-deep`` and need not recompute."""
        if self._costs.tables.ample:
            return True
        for at, (start, end, group) in enumerate(shape.spans):
            kept = stage_in_flight("1f1b-deep", at, len(shape.ends), self._costs.count)
            stage = self._prices.stage(group, start, end, self._micro_batch)
            if stage.recomputes(kept) is not False:
                return False
        return True
