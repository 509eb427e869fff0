"""A dynamic program for the pipeline with the shortest path of one micro-batch.

It goes from the last stage to the first. The stages from one on are the tail of a pipeline. The
best tails are one array with the planes below, indexed by the group of the first stage, the bound
on the period and the first state:

* ``PATH``: seconds from the start of the forward pass to the end of the backward pass;
* ``FINISH``: seconds until all stages of the tail have also summed their gradients;
* ``EXCESS``: seconds by which round trips through later stages exceed the bound. A pipeline is
  allowed only if this is not above 0;
* ``STAGES``: number of stages, which determines the micro-batches in flight of a stage before them;
* ``GROUP``: index of the group of the second stage; -1 if there is none;
* ``END``: last state of the first stage.

Numpy handles all bounds, first states and last states of a stage at once, for all groups that leave
the same devices in use. Single precision halves the memory traffic. All shapes found here are
simulated in double precision afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spbench.planner.cluster.messages import MessageCost
from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.candidates import BoundedShape, Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_table import StageTables, compute_stage_tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]
    Indices = NDArray[np.int64]

PATH, FINISH, EXCESS, STAGES, GROUP, END = range(6)
PLANES = 6
LEEWAY = 1e-6
"""Share by which a stage may exceed a bound: more than the rounding of single precision."""
# Large enough that numpy's call overhead is small, small enough that the arrays fit into caches.
_STAGES_PER_BATCH = 1 << 15


@dataclass(frozen=True, slots=True)
class MessageRates:
    """The costs of messages between groups that meet at some devices in use.

    Most sources send at the same rates to all targets, and share a row.

    Attributes:
        row: The row of each source.
        s_per_byte: Seconds per byte; ``(rows, targets, 1, 1)``.
        latency_s: Seconds per message; same shape.
    """

    row: Indices
    s_per_byte: Floats
    latency_s: Floats


@dataclass(slots=True)
class SearchGraph:
    """The placement graph of several searches for one plan, with cached costs.

    Attributes:
        placement_graph: The groups that stages can have.
        groups_by_end: The indices of groups by the devices in use after them, most devices first.
        rates: Message costs by the devices in use between two groups.
        tables: Stage costs by micro-batch size.
    """

    placement_graph: PlacementGraph
    groups_by_end: dict[Counts, list[int]] = field(default_factory=dict)
    rates: dict[Counts, MessageRates] = field(default_factory=dict)
    tables: dict[int, StageTables] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, group in enumerate(self.placement_graph.groups):
            self.groups_by_end.setdefault(group.last, []).append(index)


class CostArrays:
    """The costs of stages and messages at one micro-batch size, as arrays.

    Args:
        cost_model: The costs.
        graph: The groups that stages can have.
        micro_batch_size: Samples of a micro-batch.
        ends: The states before which a stage may end, rising. A state of this module is an index
            into them.

    Attributes:
        micro_batches: Micro-batches per step.
        tables: Costs of stages by group.
        crossing_bytes: Bytes that cross each cut.
        arriving_bytes: Bytes that a stage receives if skip connections go straight, by the cut
            before it and its end; None without skip connections.
    """

    def __init__(
        self, cost_model: CostModel, graph: SearchGraph, micro_batch_size: int, ends: Sequence[int]
    ) -> None:
        import numpy as np

        self.graph = graph
        self.ends = ends
        self.micro_batches = cost_model.training.global_batch_size // micro_batch_size
        crossing = np.array(cost_model.get_work(micro_batch_size).crossing_bytes, dtype=np.float32)
        self.crossing_bytes: Floats = crossing[list(ends[:-1])]
        self.arriving_bytes: Floats | None = None
        if cost_model.states.skips.connections:
            passing = np.array(cost_model.states.skips.passing_bytes)
            passing *= micro_batch_size / cost_model.states.profile.batch_size
            spared = passing[np.ix_(list(ends[:-1]), list(ends))].astype(np.float32)
            self.arriving_bytes = np.maximum(self.crossing_bytes[:, None] - spared, 0.0)
        if micro_batch_size not in graph.tables:
            groups = graph.placement_graph.groups
            graph.tables[micro_batch_size] = compute_stage_tables(
                cost_model, groups, micro_batch_size, ends
            )
        self.tables = graph.tables[micro_batch_size]
        self._links = cost_model.message_costs

    def get_rates(self, used: Counts) -> MessageRates:
        """Return the message costs between groups that meet at these devices in use."""
        import numpy as np

        if used not in self.graph.rates:
            placement_graph = self.graph.placement_graph
            targets = placement_graph.out_edges[used]
            rows: dict[tuple[MessageCost, ...], int] = {}
            row = [
                rows.setdefault(
                    self._list_transfer_costs(placement_graph.groups[source], targets), len(rows)
                )
                for source in self.graph.groups_by_end[used]
            ]
            costs = np.array(list(rows), dtype=np.float32)
            self.graph.rates[used] = MessageRates(
                np.array(row), costs[..., 0, None, None], costs[..., 1, None, None]
            )
        return self.graph.rates[used]

    def _list_transfer_costs(
        self, source: DeviceGroup, targets: Sequence[int]
    ) -> tuple[MessageCost, ...]:
        groups = self.graph.placement_graph.groups
        return tuple(self._links.get_transfer_cost(source, groups[target]) for target in targets)


class ShortestPathDP:
    """The dynamic program for several bounds on the period, under one schedule.

    Args:
        costs: Costs of stages and messages.
        bounds: Bounds in seconds, rising.
        deep: Whether the schedule is ``1f1b-deep`` instead of ``1f1b``.
        any_memory: Whether all stages count as fitting.
    """

    def __init__(self, costs: CostArrays, bounds: Doubles, deep: bool, any_memory: bool) -> None:
        import numpy as np

        self._np = np
        self._costs = costs
        self._tables = costs.tables
        self._placement_graph = costs.graph.placement_graph
        self._bounds_s = bounds.tolist()
        self._deep = deep
        self._bounds: Floats = bounds.astype(np.float32)
        self._any_memory = any_memory or costs.tables.always_fits
        self._limits_s: Floats = self._bounds[:, None] * np.float32(1.0 + LEEWAY)
        self._states = np.arange(len(costs.ends))
        self._bound_index = np.arange(len(bounds))[:, None]
        self._forward_s = self._repeat_per_bound(costs.tables.forward_s)
        self._passes_s = self._repeat_per_bound(costs.tables.passes_s)
        self._summed_s = self._repeat_per_bound(costs.tables.passes_s + costs.tables.all_reduce_s)
        if not self._any_memory:
            self._max_in_flight = self._repeat_per_bound(costs.tables.max_in_flight)
            self._max_in_flight_recomputing = self._repeat_per_bound(
                costs.tables.max_in_flight_recomputing
            )

    def _repeat_per_bound(self, table: Floats) -> Floats:
        # Numpy is slow over short rows, so that bounds and last states become one long row.
        return self._np.tile(table, len(self._bounds))

    def find_shapes(self) -> list[BoundedShape]:
        """Return the bounds that allow a pipeline, with the shape of the shortest path."""
        tails = self._make_empty_tails(len(self._placement_graph.groups))
        # Groups with the most devices in use come first, so that all their followers are known.
        for used, groups in self._costs.graph.groups_by_end.items():
            followers = self._find_followers(tails, used, len(groups))
            for batch in self._split_into_batches(len(groups)):
                indices = groups[batch]
                tails[:, indices] = self._prepend_stages(indices, followers[:, batch])

        first_groups = self._placement_graph.out_edges[
            (0,) * len(self._placement_graph.groups[0].last)
        ]
        shapes = []
        for index, bound_s in enumerate(self._bounds_s):
            best_group = min(first_groups, key=lambda group: float(tails[FINISH, group, index, 0]))
            if float(tails[FINISH, best_group, index, 0]) < float("inf"):
                shapes.append(BoundedShape(bound_s, self._trace_shape(tails, index, best_group)))
        return shapes

    def _split_into_batches(self, groups: int) -> Iterator[slice]:
        step = max(1, _STAGES_PER_BATCH // (len(self._bounds) * len(self._states) ** 2))
        for start in range(0, groups, step):
            yield slice(start, start + step)

    def _make_empty_tails(self, groups: int) -> Floats:
        """Return tails without stages, which are valid only behind the last state.

        The shape is ``(PLANES, groups, bounds, states)``.
        """
        np = self._np
        tails: Floats = np.zeros(
            (PLANES, groups, len(self._bounds), len(self._states)), dtype=np.float32
        )
        tails[FINISH, ..., :-1] = np.inf
        tails[GROUP] = -1.0
        return tails

    def _find_followers(self, tails: Floats, used: Counts, sources: int) -> Floats:
        """Return the best tail behind each group that ends at `used`, by its last state.

        Args:
            tails: The best tails of all groups that start at `used`.
            used: Devices in use.
            sources: The number of groups that end there.

        Returns:
            Tails with the message before them included; ``(PLANES, sources, bounds, states)``.

        The arrays before the choice of a target have ``(rows, targets, bounds, states - 1)``.
        """
        np = self._np
        followers = self._make_empty_tails(sources)
        targets = self._placement_graph.out_edges.get(used)
        if targets is None:
            return followers

        next_tails = tails[:, targets, :, 1:]
        message_bytes = self._costs.crossing_bytes[None, None]
        if self._costs.arriving_bytes is not None:
            message_bytes = self._costs.arriving_bytes[
                self._states[:-1], next_tails[END].astype(int)
            ]
        rates = self._costs.get_rates(used)
        send_s = message_bytes * rates.s_per_byte + rates.latency_s * (message_bytes > 0)
        finish_s = next_tails[FINISH] + send_s
        if self._deep:
            np.copyto(finish_s, np.inf, where=send_s > self._limits_s)

        best_target = finish_s.argmin(axis=1)
        bounds = self._bound_index
        states = self._states[:-1]
        row = np.arange(len(best_target))[:, None, None]
        # Without skip connections, messages are the same for all bounds and have one of them.
        best_send_s = send_s[row, best_target, bounds if send_s.shape[2] > 1 else 0, states]
        best_tails = next_tails[:, best_target, bounds, states]
        best_tails[FINISH] = finish_s[row, best_target, bounds, states]
        # Twice, since the output goes to the next stage, and its gradient comes back.
        best_tails[PATH] += 2.0 * best_send_s
        best_tails[EXCESS] += 2.0 * best_send_s
        if self._deep:
            best_tails[EXCESS] -= self._bounds[:, None]
        np.maximum(best_tails[EXCESS], 0.0, out=best_tails[EXCESS])
        best_tails[GROUP] = np.array(targets)[best_target]
        followers[..., :-1] = best_tails[:, rates.row]
        return followers

    def _prepend_stages(self, groups: Sequence[int], followers: Floats) -> Floats:
        """Return the tails that begin with the best stage of each group, by first state.

        Args:
            groups: The groups by index.
            followers: The best tails behind each, by the last state of the group.

        Returns:
            Tails; ``(PLANES, groups, bounds, states)``.

        The arrays before the choice of an end have ``(groups, first states, columns)``, with the
        last states for each bound one after another as columns.
        """
        np = self._np
        group_count = len(groups)
        table_indices = self._tables.table_index[groups]
        forward_s = self._forward_s[table_indices]
        passes_s = self._passes_s[table_indices]
        summed_s = self._summed_s[table_indices]
        finish_s = forward_s + followers[FINISH].reshape(group_count, 1, -1)

        if not self._any_memory:
            stages = followers[STAGES].reshape(group_count, 1, -1) + 1.0
            in_flight = np.minimum(
                2.0 * stages - 1.0 if self._deep else stages, self._costs.micro_batches
            )
            recompute = in_flight > self._max_in_flight[table_indices]
            recompute_s = np.where(recompute, forward_s, 0.0)
            passes_s += recompute_s
            summed_s += recompute_s
            too_large = recompute & (in_flight > self._max_in_flight_recomputing[table_indices])
            np.copyto(finish_s, np.inf, where=too_large)

        summed_s += followers[PATH].reshape(group_count, 1, -1)
        np.maximum(finish_s, summed_s, out=finish_s)
        allowed_s = (self._limits_s - followers[EXCESS]).reshape(group_count, 1, -1)
        finish_s = np.where(passes_s > allowed_s, np.float32(np.inf), finish_s)

        shape = group_count, len(self._states), len(self._bounds), len(self._states)
        finish_s = finish_s.reshape(shape)
        # Transposed to the order of tails: groups, bounds, first states.
        best_end = finish_s.argmin(axis=3).transpose(0, 2, 1)
        group_index = np.arange(group_count)[:, None, None]
        bounds = self._bound_index
        stage_s = passes_s.reshape(shape)[group_index, self._states, bounds, best_end]
        tails: Floats = followers[:, group_index, bounds, best_end]
        tails[FINISH] = finish_s[group_index, self._states, bounds, best_end]
        tails[PATH] += stage_s
        tails[EXCESS] += stage_s - self._bounds[:, None]
        tails[STAGES] += 1.0
        tails[END] = best_end
        return tails

    def _trace_shape(self, tails: Floats, bound_index: int, first_group: int) -> Shape:
        """Return the shape of the tail that starts with a group at the first state."""
        ends = []
        groups = []
        group_index = first_group
        start_state = 0
        while group_index >= 0:
            groups.append(self._placement_graph.groups[group_index])
            next_group_index, end = (
                tails[GROUP:, group_index, bound_index, start_state].astype(int).tolist()
            )
            group_index = next_group_index
            start_state = end + 1
            ends.append(self._costs.ends[end])
        return Shape(tuple(ends), tuple(groups))
