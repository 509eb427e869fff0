"""The plan that comes nearest to fitting the devices' memory, whatever time it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.errors import NoPlanError
from spbench.planner.plans import format_devices, format_span
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_table import compute_missing_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MOST_STAGES = 64


def find_fitting_shape(cost_model: CostModel, ways: PlacementGraph, micro_batch: int) -> Shape:
    """Return a shape that fits under ``1f1b``.

    Args:
        cost_model: The costs.
        ways: The groups that stages can have.
        micro_batch: Samples; the fewer, the more fits.

    Raises:
        NoPlanError: None fits; it says which stage of the nearest one lacks how many bytes.
    """
    shape = _Fitting(cost_model, ways, micro_batch).nearest()
    lacks = _lacks(cost_model, shape, micro_batch)
    if max(lacks) <= 0:
        return shape
    raise NoPlanError(_sentence(cost_model, shape, micro_batch, lacks))


def _lacks(cost_model: CostModel, shape: Shape, micro_batch: int) -> list[float]:
    """Return how many bytes each stage lacks."""
    found = []
    for at, (start, end, group) in enumerate(shape.spans):
        sharing = cost_model.sharing(group, micro_batch)
        kept = min(len(shape.ends) - at, cost_model.training.global_batch_size // micro_batch)
        found.append(
            min(
                cost_model.missing_bytes(sharing, start, end, kept, again)
                for again in (False, True)
            )
        )
    return found


def _sentence(cost_model: CostModel, shape: Shape, micro_batch: int, lacks: list[float]) -> str:
    worst = max(range(len(lacks)), key=lacks.__getitem__)
    start, end, group = shape.spans[worst]
    span = format_span(cost_model.states.names, start, end)
    return (
        f"no plan of {cost_model.states.profile.name} fits the memory of"
        f" {cost_model.cluster.name}: in the"
        f" one that comes nearest, with micro-batches of {micro_batch}, stage {worst} of"
        f" {len(lacks)} ({span}, {format_devices(group.size)}) lacks {lacks[worst]:.0f} bytes"
        " on a device"
    )


class _Fitting:
    """The search, from the last stage to the first, by how many stages there are.

    What is as short of memory as can be is kept for each number of stages, group and first state,
    as many micro-batches as there are stages from there on being in flight.
    """

    def __init__(self, cost_model: CostModel, ways: PlacementGraph, micro_batch: int) -> None:
        self._prices = cost_model
        self._roads = ways
        self._micro_batch = micro_batch
        self._lacks: dict[tuple[object, int], Floats] = {}

    def nearest(self) -> Shape:
        """Return the shape whose stages lack least."""
        import numpy as np

        states = len(self._prices.states)
        ways = self._roads
        empty = (0,) * len(self._prices.cluster.sizes)
        layers: list[list[Floats]] = []
        after: dict[Counts, Floats] = {}
        for stages in range(1, min(states, self._prices.cluster.device_count, _MOST_STAGES) + 1):
            layers.append([])
            for group in ways.groups:
                worst = np.maximum(self._lack(group, stages), self._next(after, group, stages))
                layers[-1].append(worst.min(axis=1))
            after = {
                used: np.min([layers[-1][at] for at in out], axis=0)
                for used, out in ways.out_edges.items()
            }
        first = ways.out_edges[empty]
        stages, at = min(
            ((stages, at) for stages in range(len(layers)) for at in first),
            key=lambda pair: float(layers[pair[0]][pair[1]][0]),
        )
        return self._shape(layers, stages, at)

    def _next(self, after: dict[Counts, Floats], group: DeviceGroup, stages: int) -> Floats:
        """Return what the stages after one lack, by its last state."""
        import numpy as np

        states = len(self._prices.states)
        found = np.full(states, np.inf)
        if stages == 1:
            found[-1] = -np.inf
        elif group.last in after:
            found[:-1] = after[group.last][1:]
        return found

    def _lack(self, group: DeviceGroup, kept: int) -> Floats:
        """Return what the stages that a group can have lack, by first and last state."""
        cost_model = self._prices
        key = cost_model.device_kinds(group), kept
        if key not in self._lacks:
            micro_batches = cost_model.training.global_batch_size // self._micro_batch
            sharing = cost_model.sharing(group, self._micro_batch)
            self._lacks[key] = compute_missing_table(cost_model, sharing, min(kept, micro_batches))
        return self._lacks[key]

    def _shape(self, layers: list[list[Floats]], stages: int, first: int) -> Shape:
        """Return the shape that starts with a group, going the same way again."""
        import numpy as np

        ways = self._roads
        ends = []
        groups = []
        start = 0
        at = first
        for left in range(stages, -1, -1):
            group = ways.groups[at]
            out = ways.out_edges.get(group.last, ())
            after = (
                {group.last: np.min([layers[left - 1][each] for each in out], axis=0)}
                if left and out
                else {}
            )
            worst = np.maximum(self._lack(group, left + 1), self._next(after, group, left + 1))
            start = int(worst[start].argmin()) + 1
            ends.append(start)
            groups.append(group)
            if left:
                at = min(out, key=lambda each: float(layers[left - 1][each][start]))
        return Shape(tuple(ends), tuple(groups))
