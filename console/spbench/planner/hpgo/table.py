"""HPGO's dynamic program for the cuts of a pipeline with the least block.

A cell is a set of devices in use with a last group. By last state it holds the least block with
which the model up to that state runs on these devices. The next stage has one or more workers, and
devices by one of the placements. Numpy handles all ends and cuts of a stage at once.

HPGO takes any split with the least block, depending on chance. Here the one of them with the least
message and all-reduce time is taken.

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
"""The number of units into which the model's time is divided."""

Following = Callable[[Counts, int], tuple[Counts, ...]]
"""The devices in use after a stage, by those in use before it and its number of workers."""


class Table:
    """The table of HPGO's dynamic program over some states.

    Args:
        work: The model.
        links: The cluster.
        limits: The limits of the search.
        states: The states that may end a stage, rising; includes the model's last one.
        following: The placements.
    """

    def __init__(
        self,
        work: HpgoWork,
        links: HpgoLinks,
        limits: SearchLimits,
        states: Indices,
        following: Following,
    ) -> None:
        import numpy as np

        self._np = np
        self._work = work
        self._links = links
        self._limits = limits
        self._states = states
        self._following = following
        # Times in whole units make stages of equal work equal to the last bit.
        unit = work.total / _UNITS
        units = np.rint(work.compute[states] / unit)
        self._compute = units * unit
        self._crossing = work.crossing[states]
        spans = (units[:, None] - units[None, :]) * unit
        self._span = np.where(work.before[np.ix_(states, states)], spans, np.inf)
        self._split = limits.pipelines * max(work.micro_batches(limits.pipelines), 1)
        # By the last group as well, since the cost of the next message depends on it.
        self._cells: list[dict[DeviceGroup, SearchCell]] = [{} for _ in range(limits.workers + 1)]
        self._rates: dict[tuple[DeviceGroup, DeviceGroup], float] = {}

    def search(self, place_first: Callable[[int], Counts]) -> HpgoCandidate | None:
        """Return the split into two or more stages with the least block.

        Args:
            place_first: Returns the devices in use after a first stage of some devices.

        Returns:
            None if no split is within the bound.
        """
        limits = self._limits
        for workers in range(1, limits.workers):
            if workers == 1 or not limits.single:
                self._add_first_stage(workers, place_first(workers * limits.pipelines))
            max_workers = 1 if limits.single else limits.workers - workers
            for cell in self._cells_to_extend(workers):
                for more in range(1, max_workers + 1):
                    self._extend(workers, cell, more)
        complete = [cell for cell in self._cells[-1].values() if len(cell.ends)]
        best = min(complete, key=_rank_at_end, default=None)
        return None if best is None else trace_candidate(best, self._states, limits.pipelines)

    def _cells_to_extend(self, workers: int) -> list[SearchCell]:
        cells = list(self._cells[workers].values())
        keep = self._limits.keep
        if keep is None or len(cells) <= keep:
            return cells
        return sorted(cells, key=lambda cell: float((cell.message_s + cell.tail).min()))[:keep]

    def _add_first_stage(self, workers: int, used: Counts) -> None:
        """Add a first stage of some workers, with each of the states as its end."""
        np = self._np
        block = self._round_to_bound(self._compute / (workers * self._limits.pipelines))
        np.maximum(block, self._limits.floor, out=block)  # later blocks are not below it
        ends = self._possible_ends(workers)
        ends = ends[block[ends] <= self._limits.limit]
        if not ends.size:
            return
        zeros = np.zeros(len(ends), dtype=np.int64)
        group = DeviceGroup((0,) * len(used), used)
        tail = np.maximum(0.0, self._all_reduce(group, ends, np.zeros(1))[:, 0])
        trial = Trial(ends, block[ends], np.zeros(len(ends)), tail, zeros - 1, zeros)
        self._cell(workers, group).keep_better(TableStep(group, None), trial)

    def _cell(self, workers: int, group: DeviceGroup) -> SearchCell:
        cells = self._cells[workers]
        if group not in cells:
            cells[group] = SearchCell(group.last, len(self._states))
        return cells[group]

    def _possible_ends(self, workers: int) -> Indices:
        """Return the states at which a number of workers can end within the bound.

        The workers before the end, and those after it, must manage their part within the bound.
        """
        limits = self._limits
        last = len(self._states) - 1
        if workers == limits.workers:
            return self._np.array([last])
        spent = self._compute[:last]
        left = (limits.workers - workers) * limits.pipelines * limits.limit
        earliest = self._work.total * (2.0 - SLACK) - left
        latest = workers * limits.pipelines * limits.limit
        return self._np.flatnonzero((spent >= earliest) & (spent <= latest))

    def _round_to_bound(self, block: Floats) -> Floats:
        """Make blocks near the bound equal to it, since they differ only by rounding."""
        bound = self._limits.bound
        is_near = (block >= bound / SLACK) & (block <= self._limits.limit)
        return self._np.where(is_near, bound, block)

    def _extend(self, workers: int, cell: SearchCell, more: int) -> None:
        """Try a stage of `more` workers behind the stages of a cell."""
        ends = self._possible_ends(workers + more)
        cuts = cell.ends
        if ends.size and cuts.size:
            for used in self._following(cell.used, more):
                trial = self._try_stage(cell, used, ends, cuts)
                if trial is not None:
                    group = DeviceGroup(cell.used, used)
                    self._cell(workers + more, group).keep_better(TableStep(group, cell), trial)

    def _try_stage(
        self, cell: SearchCell, used: Counts, ends: Indices, cuts: Indices
    ) -> Trial | None:
        """Try one more stage on one group of devices, for all its ends and cuts at once."""
        np = self._np
        group = DeviceGroup(cell.used, used)
        rates = np.array([self._rate(step.group, group) for step in cell.steps])
        message = rates[cell.step[cuts]] * self._crossing[cuts]
        before = np.maximum(cell.block[cuts], 2.0 * message)
        message_s = cell.message_s[cuts] + message / self._split
        useful = np.flatnonzero(before <= self._limits.limit)
        # argmin takes the first of equal blocks: sort so that it has the least other time.
        useful = useful[np.argsort((message_s + cell.tail[cuts])[useful], kind="stable")]
        if not useful.size:
            return None

        cuts = cuts[useful]
        before = before[useful]
        message_s = message_s[useful]
        first = ends[0]
        last = ends[-1]
        block = self._span[first : last + 1].take(cuts, axis=1)
        if len(ends) < len(block):
            block = block[ends - first]
        if (devices := group.size) > 1:
            block /= devices
        np.maximum(block, before[None, :], out=block)
        return self._choose_cuts(cell, group, ends, cuts, message_s, block)

    def _choose_cuts(
        self,
        cell: SearchCell,
        group: DeviceGroup,
        ends: Indices,
        cuts: Indices,
        message_s: Floats,
        block: Floats,
    ) -> Trial | None:
        """Choose the best cut for each end; `block` is ``(ends, cuts)``."""
        np = self._np
        rows = np.arange(len(ends))
        if self._links.all_reduce(group) == 0.0:
            choice = block.argmin(axis=1)
            tail = cell.tail[cuts][choice]
        else:
            block = self._round_to_bound(block)
            tails = self._tails(cell, group, ends, cuts)
            is_least = block == block.min(axis=1)[:, None]
            choice = np.where(is_least, message_s + tails, np.inf).argmin(axis=1)
            tail = tails[rows, choice]
        least_block = block[rows, choice]
        is_within = least_block <= self._limits.limit
        if not is_within.any():
            return None
        choice = choice[is_within]
        return Trial(
            ends[is_within],
            least_block[is_within],
            message_s[choice],
            tail[is_within],
            cuts[choice],
            cell.depth[cuts[choice]] + 1,
        )

    def _rate(self, source: DeviceGroup, target: DeviceGroup) -> float:
        key = source, target
        if key not in self._rates:
            self._rates[key] = self._links.transfer(source, target)
        return self._rates[key]

    def _all_reduce(self, group: DeviceGroup, ends: Indices, before: Floats) -> Floats:
        """Return the seconds of a stage's all-reduce, ``(ends, cuts)``.

        Like HPGO, it counts the first state of the next stage as well.

        Args:
            group: The devices of the stage.
            ends: The possible last states.
            before: Bytes of parameters before the stage, for each cut.
        """
        work = self._work
        counted_ends = self._np.minimum(self._states[ends] + 1, work.last)
        parameter_bytes = work.parameters[counted_ends][:, None] - before[None, :]
        return self._links.all_reduce(group) * parameter_bytes

    def _tails(self, cell: SearchCell, group: DeviceGroup, ends: Indices, cuts: Indices) -> Floats:
        """Return the seconds by which all-reduces outlast the pipeline, ``(ends, cuts)``."""
        before = self._work.parameters[self._states[cuts]]
        # Of one micro-batch.
        block = self._limits.bound * self._limits.pipelines / self._split
        hidden = (cell.depth[cuts] + 1) * block
        exposed = self._all_reduce(group, ends, before) - hidden[None, :]
        return self._np.maximum(cell.tail[cuts][None, :], exposed)


def _rank_at_end(cell: SearchCell) -> tuple[float, float]:
    return float(cell.block[-1]), float(cell.message_s[-1] + cell.tail[-1])
