"""The plan that lacks the least device memory, regardless of its step time."""

from __future__ import annotations

from collections.abc import Sequence
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

_MAX_STAGES = 64


def find_fitting_shape(cost_model: CostModel, graph: PlacementGraph, micro_batch: int) -> Shape:
    """Return a shape that fits under ``1f1b``.

    Args:
        cost_model: The costs.
        graph: The groups that stages can have.
        micro_batch: Samples of a micro-batch; fewer need less memory.

    Raises:
        NoPlanError: No shape fits. The message names the worst stage of the nearest shape.
    """
    shape = _MemorySearch(cost_model, graph, micro_batch).find_nearest()
    missing = _list_missing_bytes(cost_model, shape, micro_batch)
    if max(missing) <= 0:
        return shape
    raise NoPlanError(_format_no_plan(cost_model, shape, micro_batch, missing))


def _list_missing_bytes(cost_model: CostModel, shape: Shape, micro_batch: int) -> list[float]:
    """Return the bytes that each stage lacks; negative if some are left."""
    missing = []
    micro_batches = cost_model.training.global_batch_size // micro_batch
    for index, (start, end, group) in enumerate(shape.spans):
        sharing = cost_model.sharing(group, micro_batch)
        in_flight = min(len(shape.ends) - index, micro_batches)
        missing.append(
            min(
                cost_model.missing_bytes(sharing, start, end, in_flight, recompute)
                for recompute in (False, True)
            )
        )
    return missing


def _format_no_plan(
    cost_model: CostModel, shape: Shape, micro_batch: int, missing: Sequence[float]
) -> str:
    worst = max(range(len(missing)), key=missing.__getitem__)
    start, end, group = shape.spans[worst]
    span = format_span(cost_model.states.names, start, end)
    return (
        f"no plan of {cost_model.states.profile.name} fits the memory of"
        f" {cost_model.cluster.name}: in the"
        f" one that comes nearest, with micro-batches of {micro_batch}, stage {worst} of"
        f" {len(missing)} ({span}, {format_devices(group.size)}) lacks {missing[worst]:.0f} bytes"
        " on a device"
    )


class _MemorySearch:
    """The search for the pipeline that lacks the least memory in its worst stage.

    It goes from the last stage to the first, by the number of stages of the tail. For each number,
    group and first state it keeps the bytes that the worst stage of the best tail lacks. The first
    stage of a tail has as many micro-batches in flight as the tail has stages.
    """

    def __init__(self, cost_model: CostModel, graph: PlacementGraph, micro_batch: int) -> None:
        self._cost_model = cost_model
        self._graph = graph
        self._micro_batch = micro_batch
        self._missing: dict[tuple[object, int], Floats] = {}

    def find_nearest(self) -> Shape:
        """Return the shape that lacks the fewest bytes in its worst stage."""
        import numpy as np

        graph = self._graph
        state_count = len(self._cost_model.states)
        max_stages = min(state_count, self._cost_model.cluster.device_count, _MAX_STAGES)
        tails: list[list[Floats]] = []  # by stages - 1 and group: missing bytes by first state
        by_start: dict[Counts, Floats] = {}  # the least of them by the devices in use before
        for stages in range(1, max_stages + 1):
            tails.append([])
            for group in graph.groups:
                worst = self._worst_missing(group, stages, by_start)
                tails[-1].append(worst.min(axis=1))
            by_start = {
                used: np.min([tails[-1][index] for index in edges], axis=0)
                for used, edges in graph.out_edges.items()
            }

        empty = (0,) * len(self._cost_model.cluster.sizes)
        length, first = min(
            ((length, index) for length in range(len(tails)) for index in graph.out_edges[empty]),
            key=lambda pair: float(tails[pair[0]][pair[1]][0]),
        )
        return self._trace_shape(tails, length, first)

    def _worst_missing(
        self, group: DeviceGroup, stages: int, by_start: dict[Counts, Floats]
    ) -> Floats:
        """Return the bytes that the worst stage of a tail lacks, by first and last state.

        Args:
            group: The group of the tail's first stage.
            stages: Stages of the tail.
            by_start: The least missing bytes of the stages after it, by devices in use.
        """
        import numpy as np

        missing = self._stage_missing(group, stages)
        after = np.full(len(self._cost_model.states), np.inf)
        if stages == 1:
            after[-1] = -np.inf
        elif group.last in by_start:
            after[:-1] = by_start[group.last][1:]
        worst: Floats = np.maximum(missing, after)
        return worst

    def _stage_missing(self, group: DeviceGroup, in_flight: int) -> Floats:
        """Return the bytes that each stage on a group lacks, by first and last state."""
        cost_model = self._cost_model
        key = cost_model.device_kinds(group), in_flight
        if key not in self._missing:
            micro_batches = cost_model.training.global_batch_size // self._micro_batch
            sharing = cost_model.sharing(group, self._micro_batch)
            in_flight = min(in_flight, micro_batches)
            self._missing[key] = compute_missing_table(cost_model, sharing, in_flight)
        return self._missing[key]

    def _trace_shape(self, tails: list[list[Floats]], length: int, first: int) -> Shape:
        """Return the best shape that starts with a group, by repeating the choices."""
        import numpy as np

        graph = self._graph
        ends = []
        groups = []
        start = 0
        index = first
        for left in range(length, -1, -1):
            group = graph.groups[index]
            edges = graph.out_edges.get(group.last, ())
            by_start: dict[Counts, Floats] = {}
            if left and edges:
                by_start[group.last] = np.min([tails[left - 1][edge] for edge in edges], axis=0)
            worst = self._worst_missing(group, left + 1, by_start)
            start = int(worst[start].argmin()) + 1
            ends.append(start)
            groups.append(group)
            if left:
                index = min(edges, key=lambda edge: float(tails[left - 1][edge][start]))
        return Shape(tuple(ends), tuple(groups))
