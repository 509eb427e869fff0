"""HPGO's search for the cuts of one pipeline shape: the least block, by dynamic programming.

A cell stands for the devices in use and the last stage's among them, and holds over all states the
least block with which the model up to that state runs on them. The stage that follows has one
worker or more, and devices by one of the placements. numpy goes over all ends and cuts of a stage
at once.

HPGO takes any of the splits with the least block, by chance; here the least of them in messages
and all-reduce is taken.

Source: HPGO, src/layerwise/orchestration/orchestrate_async.rs (``compute_plan_sync``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.hpgo.cells import (
    SLACK,
    SearchCell,
    SearchLimits,
    TableStep,
    Trial,
    trace_candidate,
)
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoLinks, HpgoWork

if TYPE_CHECKING:
    from spbench.planner.hpgo.cells import Floats, Indices

_UNITS = 2.0**44
"""In how many units the model's time is counted."""

Following = Callable[[Counts, int], tuple[Counts, ...]]
"""Devices in use after a stage of so many workers, by those in use before it."""


class Table:
    """The table of HPGO's dynamic program over some states.

    Args:
        work: The model.
        wires: The cluster.
        shape: What is searched.
        states: The states that may end a stage, rising; the model's last one is among them.
        following: The placements.
    """

    def __init__(
        self,
        work: HpgoWork,
        wires: HpgoLinks,
        shape: SearchLimits,
        states: Indices,
        following: Following,
    ) -> None:
        import numpy as np

        self._np = np
        self._work = work
        self._wires = wires
        self._shape = shape
        self._states = states
        self._following = following
        # In whole units, so that stages of equal work are equal to the last bit.
        unit = work.total / _UNITS
        whole = np.rint(work.compute[states] / unit)
        self._compute = whole * unit
        self._crossing = work.crossing[states]
        spans = (whole[:, None] - whole[None, :]) * unit
        self._span = np.where(work.before[np.ix_(states, states)], spans, np.inf)
        self._split = shape.pipelines * max(work.micro_batches(shape.pipelines), 1)
        # By the last stage's group as well: what its message costs depends on that.
        self._cells: list[dict[DeviceGroup, SearchCell]] = [{} for _ in range(shape.workers + 1)]
        self._rates: dict[tuple[DeviceGroup, DeviceGroup], float] = {}

    def search(self, fresh: Callable[[int], Counts]) -> HpgoCandidate | None:
        """Return the split into two stages or more with the least block.

        Args:
            fresh: What is in use after the first so many devices, for the first stage.

        Returns:
            None where no split is within the bound.
        """
        shape = self._shape
        for workers in range(1, shape.workers):
            if workers == 1 or not shape.single:
                self._begin(workers, fresh(workers * shape.pipelines))
            most = 1 if shape.single else shape.workers - workers
            for cell in self._followed(workers):
                for more in range(1, most + 1):
                    self._extend(workers, cell, more)
        whole = [cell for cell in self._cells[-1].values() if len(cell.ends)]
        best = min(whole, key=_worth_at_end, default=None)
        return None if best is None else trace_candidate(best, self._states, shape.pipelines)

    def _followed(self, workers: int) -> list[SearchCell]:
        cells = list(self._cells[workers].values())
        keep = self._shape.keep
        if keep is None or len(cells) <= keep:
            return cells
        return sorted(cells, key=lambda cell: float((cell.sent + cell.tail).min()))[:keep]

    def _begin(self, workers: int, used: Counts) -> None:
        """Let the first stage have so many workers, with each of the states as its end."""
        np = self._np
        block = self._levelled(self._compute / (workers * self._shape.pipelines))
        np.maximum(block, self._shape.floor, out=block)  # later blocks are not below it
        places = self._window(workers)
        places = places[block[places] <= self._shape.limit]
        if not places.size:
            return
        none = np.zeros(len(places), dtype=np.int64)
        group = DeviceGroup((0,) * len(used), used)
        tail = np.maximum(0.0, self._all_reduce(group, places, np.zeros(1))[:, 0])
        trial = Trial(places, block[places], np.zeros(len(places)), tail, none - 1, none)
        self._cell(workers, group).keep_better(TableStep(group, None), trial)

    def _cell(self, workers: int, group: DeviceGroup) -> SearchCell:
        cells = self._cells[workers]
        if group not in cells:
            cells[group] = SearchCell(group.last, len(self._states))
        return cells[group]

    def _window(self, workers: int) -> Indices:
        """Return which states so many workers may end with, by what the others can do."""
        shape = self._shape
        last = len(self._states) - 1
        if workers == shape.workers:
            return self._np.array([last])
        spent = self._compute[:last]
        left = (shape.workers - workers) * shape.pipelines * shape.limit
        least = self._work.total * (2.0 - SLACK) - left
        most = workers * shape.pipelines * shape.limit
        return self._np.flatnonzero((spent >= least) & (spent <= most))

    def _levelled(self, block: Floats) -> Floats:
        """Take blocks at the bound as equal: they differ by rounding."""
        bound = self._shape.bound
        at_bound = (block >= bound / SLACK) & (block <= self._shape.limit)
        return self._np.where(at_bound, bound, block)

    def _extend(self, workers: int, cell: SearchCell, more: int) -> None:
        """Try a stage of so many workers more, behind those of a cell."""
        places = self._window(workers + more)
        cuts = cell.ends
        if places.size and cuts.size:
            for used in self._following(cell.used, more):
                trial = self._try(cell, used, places, cuts)
                if trial is not None:
                    group = DeviceGroup(cell.used, used)
                    self._cell(workers + more, group).keep_better(TableStep(group, cell), trial)

    def _try(self, cell: SearchCell, used: Counts, places: Indices, cuts: Indices) -> Trial | None:
        """Try one more stage on one group of devices, for all its ends and cuts at once."""
        np = self._np
        group = DeviceGroup(cell.used, used)
        rates = np.array([self._rate(step.group, group) for step in cell.steps])
        message = rates[cell.step[cuts]] * self._crossing[cuts]
        before = np.maximum(cell.block[cuts], 2.0 * message)
        sent = cell.sent[cuts] + message / self._split
        useful = np.flatnonzero(before <= self._shape.limit)
        # The first of several equal blocks is then the one with the least beside it.
        useful = useful[np.argsort((sent + cell.tail[cuts])[useful], kind="stable")]
        if not useful.size:
            return None
        cuts, before, sent = cuts[useful], before[useful], sent[useful]
        first = places[0]
        last = places[-1]
        block = self._span[first : last + 1].take(cuts, axis=1)
        if len(places) < len(block):
            block = block[places - first]
        if (devices := group.size) > 1:
            block /= devices
        np.maximum(block, before[None, :], out=block)
        return self._best(cell, group, places, cuts, sent, block)

    def _best(
        self,
        cell: SearchCell,
        group: DeviceGroup,
        places: Indices,
        cuts: Indices,
        sent: Floats,
        block: Floats,
    ) -> Trial | None:
        """Choose the cut for each end; ``block`` is ``(ends, cuts)``."""
        np = self._np
        rows = np.arange(len(places))
        if self._wires.all_reduce(group) == 0.0:
            choice = block.argmin(axis=1)
            tail = cell.tail[cuts][choice]
        else:
            block = self._levelled(block)
            tails = self._tails(cell, group, places, cuts)
            beside = np.where(block == block.min(axis=1)[:, None], sent + tails, np.inf)
            choice = beside.argmin(axis=1)
            tail = tails[rows, choice]
        least = block[rows, choice]
        within = least <= self._shape.limit
        if not within.any():
            return None
        choice = choice[within]
        return Trial(
            places[within],
            least[within],
            sent[choice],
            tail[within],
            cuts[choice],
            cell.depth[cuts[choice]] + 1,
        )

    def _rate(self, source: DeviceGroup, target: DeviceGroup) -> float:
        key = source, target
        if key not in self._rates:
            self._rates[key] = self._wires.transfer(source, target)
        return self._rates[key]

    def _all_reduce(self, group: DeviceGroup, places: Indices, before: Floats) -> Floats:
        """Return a stage's all-reduce as HPGO counts it, ``(ends, parameters before it)``."""
        work = self._work
        ends = self._np.minimum(self._states[places] + 1, work.last)
        held = work.parameters[ends][:, None] - before[None, :]
        return self._wires.all_reduce(group) * held

    def _tails(
        self, cell: SearchCell, group: DeviceGroup, places: Indices, cuts: Indices
    ) -> Floats:
        """Return by how much all-reduces outlast the pipeline, ``(ends, cuts)``."""
        before = self._work.parameters[self._states[cuts]]
        block = self._shape.bound * self._shape.pipelines / self._split  # of a micro-batch
        hidden = (cell.depth[cuts] + 1) * block
        late = self._all_reduce(group, places, before) - hidden[None, :]
        return self._np.maximum(cell.tail[cuts][None, :], late)


def _worth_at_end(cell: SearchCell) -> tuple[float, float]:
    return float(cell.block[-1]), float(cell.sent[-1] + cell.tail[-1])
