"""The dynamic program of the shortest ways through all stages, from the last one to the first.

Numpy goes over several bounds, the first states and the last states of a stage at once, for all
groups after which the same devices are in use. What is known of the stages from one on, the tail
of a pipeline, is an array of these rows, by group, by bound and by the first state:

* ``WAY``: seconds from the start of its forward until the end of its backward pass;
* ``DONE``: seconds until all stages from here on have summed their gradients, too;
* ``OVER``: by how much its rounds with later stages exceed the bound, which must not be above 0;
* ``STAGES``: how many there are, which says what a stage before them must keep in flight;
* ``GROUP``: the group of the stage after the first one, by index; -1 where there is none;
* ``END``: the last state of the first stage.

All are in single precision, which halves what numpy has to read: what is found is simulated in
double precision afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spbench.planner.cluster.messages import MessageCost
from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_table import StageTables, stage_tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]
    Indices = NDArray[np.int64]

PATH, FINISH, EXCESS, STAGES, GROUP, END = range(6)
LEEWAY = 1e-6
"""The share by which a stage may exceed a bound: more than rounding in single precision."""
_AT_ONCE = 1 << 15
"""Stages that numpy goes over at once: so many that its calls cost little and caches hold them."""


@dataclass(frozen=True, slots=True)
class MessageRates:
    """The rates of messages between groups, what is in use between them being given.

    Groups before it that send at equal rates to all after it, as most do, share a row.

    Attributes:
        row: The row of each group before it.
        per_byte: Seconds a byte, by row and by the group after it.
        latency: Likewise, seconds.
    """

    row: Indices
    per_byte: Floats
    latency: Floats


@dataclass(slots=True)
class SearchGraph:
    """The placement graph of several searches for one plan, with what they all need of it.

    Attributes:
        graph: The groups that stages can have.
        ending: By what is in use after them, the indices of groups; those with the most first.
        rates: Of messages, by what is in use between two groups.
        tables: The costs of stages, by micro-batch size.
    """

    placements: PlacementGraph
    groups_by_end: dict[Counts, list[int]] = field(default_factory=dict)
    rates: dict[Counts, MessageRates] = field(default_factory=dict)
    tables: dict[int, StageTables] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, group in enumerate(self.placements.groups):
            self.groups_by_end.setdefault(group.last, []).append(at)


class CostArrays:
    """The costs of stages and of messages between them at one micro-batch size, as arrays.

    Args:
        cost_model: The costs.
        roads: The groups that stages can have.
        micro_batch: Samples.
        ends: The states before which a stage may end, rising; what is called a state elsewhere
            here is an index of these.

    Attributes:
        count: Micro-batches of a step.
        tables: Of stages, by group.
        crossing: The bytes that cross each cut.
        arriving: What stages get where skips go straight, by the cut before them and their end;
            None where there are no skips.
    """

    def __init__(
        self, cost_model: CostModel, roads: SearchGraph, micro_batch: int, ends: Sequence[int]
    ) -> None:
        import numpy as np

        self.roads = roads
        self.ends = ends
        self.count = cost_model.training.global_batch_size // micro_batch
        crossing = np.array(cost_model.work(micro_batch).crossing, dtype=np.float32)
        self.crossing: Floats = crossing[list(ends[:-1])]
        self.arriving: Floats | None = None
        if cost_model.states.skips.connections:
            past = np.array(cost_model.states.skips.passing_bytes)
            past *= micro_batch / cost_model.states.profile.batch_size
            spared = past[np.ix_(list(ends[:-1]), list(ends))].astype(np.float32)
            self.arriving = np.maximum(self.crossing[:, None] - spared, 0.0)
        if micro_batch not in roads.tables:
            groups = roads.placements.groups
            roads.tables[micro_batch] = stage_tables(cost_model, groups, micro_batch, ends)
        self.tables = roads.tables[micro_batch]
        self._links = cost_model.links

    def rates(self, used: Counts) -> MessageRates:
        """Return the rates of messages between groups, what is in use between them being given."""
        import numpy as np

        if used not in self.roads.rates:
            graph = self.roads.placements
            rows: dict[tuple[MessageCost, ...], int] = {}
            row = [
                rows.setdefault(
                    self._to_all(graph.groups[source], graph.out_edges[used]), len(rows)
                )
                for source in self.roads.groups_by_end[used]
            ]
            rates = np.array(list(rows), dtype=np.float32)
            self.roads.rates[used] = MessageRates(
                np.array(row), rates[..., 0, None, None], rates[..., 1, None, None]
            )
        return self.roads.rates[used]

    def _to_all(self, source: DeviceGroup, targets: Sequence[int]) -> tuple[MessageCost, ...]:
        groups = self.roads.placements.groups
        return tuple(self._links.transfer_cost(source, groups[target]) for target in targets)


class ShortestPathDP:
    """The dynamic program for several bounds on the period, under one schedule.

    Args:
        costs: Of stages.
        bounds: Seconds, rising.
        deep: Whether the schedule is ``1f1b-deep``, else it is ``1f1b``.
        any_memory: Whether to take all stages to fit.
    """

    def __init__(self, costs: CostArrays, bounds: Doubles, deep: bool, any_memory: bool) -> None:
        import numpy as np

        self._np = np
        self._costs = costs
        self._tables = costs.tables
        self._graph = costs.roads.placements
        self._seconds = bounds.tolist()
        self._deep = deep
        self._bounds: Floats = bounds.astype(np.float32)
        self._any_memory = any_memory or costs.tables.ample
        self._limits: Floats = self._bounds[:, None] * np.float32(1.0 + LEEWAY)
        self._places = np.arange(len(costs.ends))
        self._lanes = np.arange(len(bounds))[:, None]
        self._forward = self._by_lane(costs.tables.forward)
        self._both = self._by_lane(costs.tables.both)
        self._summed = self._by_lane(costs.tables.both + costs.tables.reduce)
        if not self._any_memory:
            self._plain = self._by_lane(costs.tables.plain)
            self._recomputing = self._by_lane(costs.tables.recomputing)

    def _by_lane(self, table: Floats) -> Floats:
        """Return a table with its rows once for each bound: numpy is slow over short rows."""
        return self._np.tile(table, len(self._bounds))

    def shapes(self) -> list[tuple[float, Shape]]:
        """Return each bound that allows any shape, and the one with the shortest way."""
        tails = self._nothing(len(self._graph.groups))
        for used, groups in self._costs.roads.groups_by_end.items():
            rest = self._rest(tails, used, len(groups))
            for part in self._parts(len(groups)):
                some = groups[part]
                tails[:, some] = self._stages(some, rest[:, part])
        first = self._graph.out_edges[(0,) * len(self._graph.groups[0].last)]
        found = []
        for lane, bound in enumerate(self._seconds):
            best = min(first, key=lambda at: float(tails[FINISH, at, lane, 0]))
            if float(tails[FINISH, best, lane, 0]) < float("inf"):
                found.append((bound, self._shape(tails, lane, best)))
        return found

    def _parts(self, groups: int) -> Iterator[slice]:
        """Yield parts of so many groups whose stages numpy is to go over at once."""
        step = max(1, _AT_ONCE // (len(self._bounds) * len(self._places) ** 2))
        for start in range(0, groups, step):
            yield slice(start, start + step)

    def _nothing(self, groups: int) -> Floats:
        """Return that nothing follows the last state, and that the others cannot be the end."""
        np = self._np
        tails: Floats = np.zeros(
            (6, groups, len(self._bounds), len(self._places)), dtype=np.float32
        )
        tails[FINISH, ..., :-1] = np.inf
        tails[GROUP] = -1.0
        return tails

    def _rest(self, tails: Floats, used: Counts, groups: int) -> Floats:
        """Return the best tails after each group, by the last state that the group has."""
        np = self._np
        rest = self._nothing(groups)
        out = self._graph.out_edges.get(used)
        if out is None:
            return rest
        following = tails[:, out, :, 1:]
        count = self._costs.crossing[None, None]
        if self._costs.arriving is not None:
            count = self._costs.arriving[self._places[:-1], following[END].astype(int)]
        rates = self._costs.rates(used)
        sends = count * rates.per_byte + rates.latency * (count > 0)
        done = following[FINISH] + sends
        if self._deep:
            np.copyto(done, np.inf, where=sends > self._limits)
        best = done.argmin(axis=1)
        lanes = self._lanes
        places = self._places[:-1]
        row = np.arange(len(best))[:, None, None]
        sent = sends[row, best, lanes if sends.shape[2] > 1 else 0, places]
        found = following[:, best, lanes, places]
        found[FINISH] = done[row, best, lanes, places]
        found[PATH] += 2.0 * sent
        found[EXCESS] += 2.0 * sent
        if self._deep:
            found[EXCESS] -= self._bounds[:, None]
        np.maximum(found[EXCESS], 0.0, out=found[EXCESS])
        found[GROUP] = np.array(out)[best]
        rest[..., :-1] = found[:, rates.row]
        return rest

    def _stages(self, groups: Sequence[int], rest: Floats) -> Floats:
        """Return the tails that begin with the best stages of groups, by their first state."""
        np = self._np
        tables = self._tables
        kinds = tables.kinds[groups]
        shape = len(groups), len(self._places), len(self._bounds), len(self._places)
        forward = self._forward[kinds]
        both = self._both[kinds]
        done = forward + rest[FINISH].reshape(len(groups), 1, -1)
        summed = self._summed[kinds]
        if not self._any_memory:
            here = rest[STAGES].reshape(len(groups), 1, -1) + 1.0
            kept = np.minimum(2.0 * here - 1.0 if self._deep else here, self._costs.count)
            again = kept > self._plain[kinds]
            more = np.where(again, forward, 0.0)
            both += more
            summed += more
            np.copyto(done, np.inf, where=again & (kept > self._recomputing[kinds]))
        summed += rest[PATH].reshape(len(groups), 1, -1)
        np.maximum(done, summed, out=done)
        left = (self._limits - rest[EXCESS]).reshape(len(groups), 1, -1)
        done = np.where(both > left, np.float32(np.inf), done)
        end = done.reshape(shape).argmin(axis=3).transpose(0, 2, 1)
        at = np.arange(len(groups))[:, None, None]
        lanes = self._lanes
        taken = both.reshape(shape)[at, self._places, lanes, end]
        tails: Floats = rest[:, at, lanes, end]
        tails[FINISH] = done.reshape(shape)[at, self._places, lanes, end]
        tails[PATH] += taken
        tails[EXCESS] += taken - self._bounds[:, None]
        tails[STAGES] += 1.0
        tails[END] = end
        return tails

    def _shape(self, tails: Floats, lane: int, first: int) -> Shape:
        ends = []
        groups = []
        at = first
        state = 0
        while at >= 0:
            groups.append(self._graph.groups[at])
            following, end = tails[GROUP:, at, lane, state].astype(int).tolist()
            at = following
            state = end + 1
            ends.append(self._costs.ends[end])
        return Shape(tuple(ends), tuple(groups))
