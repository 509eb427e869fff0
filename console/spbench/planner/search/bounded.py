"""The search of mode ``best`` for cuts and groups, from the last stage to the first.

A step takes about one micro-batch's way through all stages and back, and ``M - 1`` times the
period in which the slowest stage, or a round trip that must be waited for, lets one more through.
So for each of several bounds on the period the way is made as short as can be: numpy goes over
the bounds, the first states and the last states of a stage at once, once for each group that a
stage can have and each that the next one can have. What follows a stage is kept as

* ``way``: seconds from the start of its forward until the end of its backward pass;
* ``done``: seconds until all stages from here on have summed their gradients, too;
* ``over``: by how much its rounds with later stages exceed the bound, which must not be above 0;
* ``stages``: how many there are, which says what a stage before them must keep in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.cluster.placement_graph import PlacementGraph
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel
from spbench.planner.search.stage_table import StageTable, stage_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

_LEEWAY = 1e-9


@dataclass(frozen=True, slots=True)
class _Tails:
    """The dynamic program's table of the stages from one on, by bound and by a state.

    Attributes:
        group: The group of the stage after the first one, by index; -1 where there is none.
        end: The last state of the first stage.
    """

    way: Floats
    done: Floats
    over: Floats
    stages: Floats
    group: Indices
    end: Indices


@dataclass(slots=True)
class Roads:
    """The placement graph of several searches for one plan, with what they all need of it.

    Attributes:
        graph: The groups that stages can have.
        rates: Of messages from a group to each that can follow: seconds a byte, and latency.
        tables: The costs of stages, by micro-batch size and by what the groups have in common.
    """

    graph: PlacementGraph
    rates: dict[DeviceGroup, Floats] = field(default_factory=dict)
    tables: dict[object, StageTable] = field(default_factory=dict)


class Bounded:
    """The dynamic program over cuts and groups at one micro-batch size and under one schedule.

    Args:
        cost_model: The costs.
        roads: The groups that stages can have.
        micro_batch: Samples.
        deep: Whether the schedule is ``1f1b-deep``, else it is ``1f1b``.
        ends: The states before which a stage may end, rising; what is called a state elsewhere
            here is an index of these.
    """

    def __init__(
        self,
        cost_model: CostModel,
        roads: Roads,
        micro_batch: int,
        deep: bool,
        ends: Sequence[int],
    ) -> None:
        import numpy as np

        self._np = np
        self._prices, self._roads, self._graph = cost_model, roads, roads.graph
        self._micro_batch, self._deep = micro_batch, deep
        self._count = cost_model.training.global_batch_size // micro_batch
        self._ends = ends
        self._crossing = np.array(cost_model.work(micro_batch).crossing)[list(ends[:-1])]
        self._arriving = self._bytes_arriving() if cost_model.states.skips.connections else None

    def search(self, bounds: Floats) -> list[tuple[float, Shape]]:
        """Return each bound that allows any shape, and the one with the shortest way."""
        tails: list[_Tails] = []
        following: dict[Counts, tuple[Floats, ...]] = {}
        for group in self._graph.groups:
            out = self._graph.out.get(group.last, ())
            if out and group.last not in following:
                following[group.last] = self._stacked([tails[at] for at in out])
            rest = self._nothing(len(bounds))
            if out:
                self._follow(rest, group, out, following[group.last], bounds)
            tails.append(self._stage(group, rest, bounds))
        first = self._graph.out[(0,) * len(self._prices.cluster.sizes)]
        found = []
        for lane, bound in enumerate(bounds.tolist()):
            best = min(first, key=lambda at: float(tails[at].done[lane, 0]))
            if float(tails[best].done[lane, 0]) < float("inf"):
                found.append((bound, self._shape(tails, lane, best)))
        return found

    def _bytes_arriving(self) -> Floats:
        """Return what stages get where skips go straight, by the cut before them, and their end."""
        np, cost_model = self._np, self._prices
        past = np.array(cost_model.states.skips.passing_bytes)
        past *= self._micro_batch / cost_model.states.profile.batch_size
        spared = past[np.ix_(list(self._ends[:-1]), list(self._ends))]
        arriving: Floats = np.maximum(self._crossing[:, None] - spared, 0.0)
        return arriving

    def _stacked(self, tails: list[_Tails]) -> tuple[Floats, ...]:
        return tuple(
            self._np.stack([getattr(tail, name) for tail in tails])
            for name in ("way", "done", "over", "stages", "end")
        )

    def _nothing(self, lanes: int) -> _Tails:
        """Return that nothing follows the last state, and that the others cannot be the end."""
        np = self._np
        shape = lanes, len(self._crossing) + 1
        done = np.full(shape, np.inf)
        done[:, -1] = 0.0
        none = np.full(shape, -1)
        return _Tails(np.zeros(shape), done, np.zeros(shape), np.zeros(shape), none, none)

    def _follow(
        self,
        rest: _Tails,
        group: DeviceGroup,
        out: tuple[int, ...],
        following: tuple[Floats, ...],
        bounds: Floats,
    ) -> None:
        """Fill in the best stages after a group, by the last state that it has."""
        np = self._np
        rates = self._rates(group, out)
        way, done, over, stages, end = (each[:, :, 1:] for each in following)
        count = self._crossing[None, None]
        if self._arriving is not None:
            count = self._arriving[np.arange(len(self._crossing)), end]
        sends = count * rates[:, :1, None] + rates[:, 1:, None] * (count > 0)
        done = done + sends
        period = bounds[:, None]
        if self._deep:
            done = np.where(sends > period * (1.0 + _LEEWAY), np.inf, done)
        best = done.argmin(axis=0)
        lanes, places = self._indices(best)
        sent = sends[best, lanes if sends.shape[1] > 1 else 0, places]
        rest.done[:, :-1] = done[best, lanes, places]
        rest.way[:, :-1] = way[best, lanes, places] + 2.0 * sent
        waits = over[best, lanes, places] + 2.0 * sent - (period if self._deep else 0.0)
        rest.over[:, :-1] = np.maximum(waits, 0.0)
        rest.stages[:, :-1] = stages[best, lanes, places]
        rest.group[:, :-1] = np.array(out)[best]

    def _rates(self, group: DeviceGroup, out: tuple[int, ...]) -> Floats:
        """Return the rates of a group's messages to those that can follow, a row for each."""
        rates = self._roads.rates
        if group not in rates:
            links, groups = self._prices.links, self._graph.groups
            rates[group] = self._np.array([links.transfer(group, groups[at]) for at in out])
        return rates[group]

    def _indices(self, picked: Indices) -> tuple[Indices, Indices]:
        """Return the indices of lanes and of places that go with what is picked for each."""
        np = self._np
        return np.arange(picked.shape[0])[:, None], np.arange(picked.shape[1])

    def _table(self, group: DeviceGroup) -> StageTable:
        cost_model = self._prices
        rate = cost_model.links.all_reduce(group)
        key = cost_model.kinds(group), rate, self._micro_batch
        tables = self._roads.tables
        if key not in tables:
            sharing = cost_model.sharing(group, self._micro_batch)
            tables[key] = stage_table(cost_model, sharing, rate, self._ends)
        return tables[key]

    def _stage(self, group: DeviceGroup, rest: _Tails, bounds: Floats) -> _Tails:
        """Return the best stages that a group can have, by their first state."""
        np = self._np
        table = self._table(group)
        both: Floats = table.both[None]
        here = rest.stages + 1.0
        kept = np.minimum(2.0 * here - 1.0 if self._deep else here, self._count)[:, None, :]
        done = table.forward + rest.done[:, None, :]
        if not table.ample:
            again = kept > table.plain
            both = both + np.where(again, table.forward, 0.0)
            done[again & (kept > table.recomputing)] = np.inf
        way = both + rest.way[:, None, :]
        np.maximum(done, way + table.reduce, out=done)
        over = both - bounds[:, None, None] + rest.over[:, None, :]
        done[over > _LEEWAY * bounds[:, None, None]] = np.inf
        end = done.argmin(axis=2)
        lanes, places = self._indices(end)
        return _Tails(
            way=way[lanes, places, end],
            done=done[lanes, places, end],
            over=over[lanes, places, end],
            stages=here[lanes, end],
            group=rest.group[lanes, end],
            end=end,
        )

    def _shape(self, tails: list[_Tails], lane: int, first: int) -> Shape:
        ends, groups = [], []
        at, state = first, 0
        while at >= 0:
            groups.append(self._graph.groups[at])
            tail = tails[at]
            at, state = int(tail.group[lane, state]), int(tail.end[lane, state]) + 1
            ends.append(self._ends[state - 1])
        return Shape(tuple(ends), tuple(groups))
