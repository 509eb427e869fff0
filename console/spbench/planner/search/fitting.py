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


def find_fitting_shape(
    cost_model: CostModel, graph: PlacementGraph, micro_batch_size: int
) -> Shape:
    """Return a shape that fits under ``1f1b``.

    Args:
        cost_model: The costs.
        graph: The groups that stages can have.
        micro_batch_size: Samples of a micro-batch; fewer need less memory.

    Raises:
        NoPlanError: No shape fits. The message names the worst stage of the nearest shape.
    """
    shape = _MemorySearch(cost_model, graph, micro_batch_size).find_nearest()
    missing_bytes = _list_missing_bytes(cost_model, shape, micro_batch_size)
    if max(missing_bytes) <= 0:
        return shape
    raise NoPlanError(_format_no_plan(cost_model, shape, micro_batch_size, missing_bytes))


def _list_missing_bytes(cost_model: CostModel, shape: Shape, micro_batch_size: int) -> list[float]:
    """Return the bytes that each stage lacks; negative if some are left."""
    missing_bytes = []
    micro_batches = cost_model.training.global_batch_size // micro_batch_size
    for index, (start, end, group) in enumerate(shape.spans):
        sharing = cost_model.get_sharing(group, micro_batch_size)
        in_flight = min(len(shape.ends) - index, micro_batches)
        missing_bytes.append(
            min(
                cost_model.compute_missing_bytes(sharing, start, end, in_flight, recompute)
                for recompute in (False, True)
            )
        )
    return missing_bytes


def _format_no_plan(
    cost_model: CostModel, shape: Shape, micro_batch_size: int, missing_bytes: Sequence[float]
) -> str:
    worst_stage = max(range(len(missing_bytes)), key=missing_bytes.__getitem__)
    start, end, group = shape.spans[worst_stage]
    span = format_span(cost_model.states.names, start, end)
    return (
        f"no plan of {cost_model.states.profile.name} fits the memory of"
        f" {cost_model.cluster.name}: in the"
        f" one that comes nearest, with micro-batches of {micro_batch_size}, stage {worst_stage} of"
        f" {len(missing_bytes)} ({span}, {format_devices(group.size)}) lacks"
        f" {missing_bytes[worst_stage]:.0f} bytes on a device"
    )


class _MemorySearch:
    """The search for the pipeline that lacks the least memory in its worst stage.

    It goes from the last stage to the first, by the number of stages of the tail. For each number,
    group and first state it keeps the bytes that the worst stage of the best tail lacks. The first
    stage of a tail has as many micro-batches in flight as the tail has stages.
    """

    def __init__(self, cost_model: CostModel, graph: PlacementGraph, micro_batch_size: int) -> None:
        self._cost_model = cost_model
        self._graph = graph
        self._micro_batch = micro_batch_size
        self._missing_by_kinds: dict[tuple[object, int], Floats] = {}

    def find_nearest(self) -> Shape:
        """Return the shape that lacks the fewest bytes in its worst stage."""
        import numpy as np

        graph = self._graph
        state_count = len(self._cost_model.states)
        max_stages = min(state_count, self._cost_model.cluster.device_count, _MAX_STAGES)
        # By stages - 1 and group; all are kept, since `_trace_shape` repeats the choices.
        missing_by_tail: list[list[Floats]] = []
        # Only of tails with one stage less, since others cannot follow.
        least_by_used: dict[Counts, Floats] = {}
        for stages in range(1, max_stages + 1):
            missing_by_tail.append([])
            for group in graph.groups:
                worst_missing = self._compute_worst_missing(group, stages, least_by_used)
                missing_by_tail[-1].append(worst_missing.min(axis=1))
            least_by_used = {
                used: np.min([missing_by_tail[-1][index] for index in edges], axis=0)
                for used, edges in graph.out_edges.items()
            }

        no_devices = (0,) * len(self._cost_model.cluster.sizes)
        later_stages, first_group = min(
            (
                (later_stages, index)
                for later_stages in range(len(missing_by_tail))
                for index in graph.out_edges[no_devices]
            ),
            key=lambda tail: float(missing_by_tail[tail[0]][tail[1]][0]),
        )
        return self._trace_shape(missing_by_tail, later_stages, first_group)

    def _compute_worst_missing(
        self, group: DeviceGroup, stages: int, least_by_used: dict[Counts, Floats]
    ) -> Floats:
        """Return the bytes that the worst stage of a tail lacks, by first and last state.

        Args:
            group: The group of the tail's first stage.
            stages: Stages of the tail.
            least_by_used: The least missing bytes of the stages after it, by devices in use.
        """
        import numpy as np

        stage_missing = self._get_stage_missing(group, stages)
        missing_after = np.full(len(self._cost_model.states), np.inf)
        if stages == 1:
            missing_after[-1] = -np.inf
        elif group.last in least_by_used:
            missing_after[:-1] = least_by_used[group.last][1:]
        worst_missing: Floats = np.maximum(stage_missing, missing_after)
        return worst_missing

    def _get_stage_missing(self, group: DeviceGroup, in_flight: int) -> Floats:
        """Return the bytes that each stage on a group lacks, by first and last state."""
        cost_model = self._cost_model
        key = cost_model.count_device_kinds(group), in_flight
        if key not in self._missing_by_kinds:
            micro_batches = cost_model.training.global_batch_size // self._micro_batch
            sharing = cost_model.get_sharing(group, self._micro_batch)
            in_flight = min(in_flight, micro_batches)
            self._missing_by_kinds[key] = compute_missing_table(cost_model, sharing, in_flight)
        return self._missing_by_kinds[key]

    def _trace_shape(
        self, missing_by_tail: list[list[Floats]], later_stages: int, first_group: int
    ) -> Shape:
        """Return the best shape that starts with a group, by repeating the choices."""
        import numpy as np

        graph = self._graph
        ends = []
        groups = []
        start = 0
        index = first_group
        for stages_after in range(later_stages, -1, -1):
            group = graph.groups[index]
            edges = graph.out_edges.get(group.last, ())
            least_by_used: dict[Counts, Floats] = {}
            if stages_after and edges:
                least_by_used[group.last] = np.min(
                    [missing_by_tail[stages_after - 1][edge] for edge in edges], axis=0
                )
            worst_missing = self._compute_worst_missing(group, stages_after + 1, least_by_used)
            start = int(worst_missing[start].argmin()) + 1
            ends.append(start)
            groups.append(group)
            if stages_after:
                index = min(
                    edges, key=lambda edge: float(missing_by_tail[stages_after - 1][edge][start])
                )
        return Shape(tuple(ends), tuple(groups))
