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
from spbench.planner.hpgo.costs import HpgoCandidate, HpgoCluster, HpgoModel

if TYPE_CHECKING:
    from spbench.planner.hpgo.cells import Floats, Indices

_WORK_UNITS = 2.0**44
"""The number of units into which the model's time is divided."""

PlaceNext = Callable[[Counts, int], tuple[Counts, ...]]
"""The devices in use after a stage, by those in use before it and its number of workers."""


class SplitTable:
    """The table of HPGO's dynamic program over some states.

    Args:
        model: The model.
        hpgo_cluster: The cluster.
        limits: The limits of the search.
        states: The states that may end a stage, rising; includes the model's last one.
        place_next: The placements.
    """

    def __init__(
        self,
        model: HpgoModel,
        hpgo_cluster: HpgoCluster,
        limits: SearchLimits,
        states: Indices,
        place_next: PlaceNext,
    ) -> None:
        import numpy as np

        self._np = np
        self._model = model
        self._hpgo_cluster = hpgo_cluster
        self._limits = limits
        self._states = states
        self._place_next = place_next
        # Times in whole units make stages of equal work equal to the last bit.
        unit_s = model.total_s / _WORK_UNITS
        work_units = np.rint(model.compute_s[states] / unit_s)
        self._compute_s = work_units * unit_s
        self._crossing_bytes = model.crossing_bytes[states]
        span_s = (work_units[:, None] - work_units[None, :]) * unit_s
        self._span_s = np.where(model.can_precede[np.ix_(states, states)], span_s, np.inf)
        self._all_micro_batches = limits.pipelines * max(
            model.count_micro_batches(limits.pipelines), 1
        )
        # By the last group as well, since the cost of the next message depends on it.
        self._cells: list[dict[DeviceGroup, SearchCell]] = [{} for _ in range(limits.workers + 1)]
        self._s_per_byte: dict[tuple[DeviceGroup, DeviceGroup], float] = {}

    def search(self, place_first: Callable[[int], Counts]) -> HpgoCandidate | None:
        """Return the split into two or more stages with the least block.

        Args:
            place_first: Returns the devices in use after a first stage of some devices.

        Returns:
            None if no split is within the bound.
        """
        limits = self._limits
        for workers in range(1, limits.workers):
            if workers == 1 or not limits.is_one_worker_per_stage:
                self._add_first_stage(workers, place_first(workers * limits.pipelines))
            max_added = 1 if limits.is_one_worker_per_stage else limits.workers - workers
            for cell in self._select_cells_to_extend(workers):
                for added_workers in range(1, max_added + 1):
                    self._extend(workers, cell, added_workers)
        complete_cells = [cell for cell in self._cells[-1].values() if len(cell.ends)]
        best = min(complete_cells, key=_rank_by_block_and_overhead, default=None)
        return None if best is None else trace_candidate(best, self._states, limits.pipelines)

    def _select_cells_to_extend(self, workers: int) -> list[SearchCell]:
        cells = list(self._cells[workers].values())
        max_cells = self._limits.max_cells
        if max_cells is None or len(cells) <= max_cells:
            return cells
        return sorted(cells, key=lambda cell: float((cell.message_s + cell.tail_s).min()))[
            :max_cells
        ]

    def _add_first_stage(self, workers: int, used: Counts) -> None:
        """Add a first stage of some workers, with each of the states as its end."""
        np = self._np
        block_s = self._round_to_bound(self._compute_s / (workers * self._limits.pipelines))
        np.maximum(block_s, self._limits.min_block_s, out=block_s)  # later blocks are not below it
        ends = self._find_possible_ends(workers)
        ends = ends[block_s[ends] <= self._limits.bound_with_slack_s]
        if not ends.size:
            return
        zeros = np.zeros(len(ends), dtype=np.int64)
        group = DeviceGroup((0,) * len(used), used)
        tail_s = np.maximum(0.0, self._compute_all_reduce_s(group, ends, np.zeros(1))[:, 0])
        trial = Trial(ends, block_s[ends], np.zeros(len(ends)), tail_s, zeros - 1, zeros)
        self._get_cell(workers, group).keep_better(TableStep(group, None), trial)

    def _get_cell(self, workers: int, group: DeviceGroup) -> SearchCell:
        cells = self._cells[workers]
        if group not in cells:
            cells[group] = SearchCell(group.last, len(self._states))
        return cells[group]

    def _find_possible_ends(self, workers: int) -> Indices:
        """Return the states at which a number of workers can end within the bound.

        The workers before the end, and those after it, must manage their part within the bound.
        """
        limits = self._limits
        last_index = len(self._states) - 1
        if workers == limits.workers:
            return self._np.array([last_index])
        work_before_s = self._compute_s[:last_index]
        capacity_after_s = (limits.workers - workers) * limits.pipelines * limits.bound_with_slack_s
        least_work_s = self._model.total_s * (2.0 - SLACK) - capacity_after_s
        most_work_s = workers * limits.pipelines * limits.bound_with_slack_s
        return self._np.flatnonzero(
            (work_before_s >= least_work_s) & (work_before_s <= most_work_s)
        )

    def _round_to_bound(self, block_s: Floats) -> Floats:
        """Make blocks near the bound equal to it, since they differ only by rounding."""
        bound_s = self._limits.bound_s
        is_near = (block_s >= bound_s / SLACK) & (block_s <= self._limits.bound_with_slack_s)
        return self._np.where(is_near, bound_s, block_s)

    def _extend(self, workers: int, cell: SearchCell, added_workers: int) -> None:
        """Try a stage of `added_workers` behind the stages of a cell."""
        ends = self._find_possible_ends(workers + added_workers)
        cuts = cell.ends
        if ends.size and cuts.size:
            for used in self._place_next(cell.used, added_workers):
                trial = self._try_stage(cell, used, ends, cuts)
                if trial is not None:
                    group = DeviceGroup(cell.used, used)
                    self._get_cell(workers + added_workers, group).keep_better(
                        TableStep(group, cell), trial
                    )

    def _try_stage(
        self, cell: SearchCell, used: Counts, ends: Indices, cuts: Indices
    ) -> Trial | None:
        """Try one more stage on one group of devices, for all its ends and cuts at once."""
        np = self._np
        group = DeviceGroup(cell.used, used)
        s_per_byte_by_step = np.array(
            [self._get_transfer_s_per_byte(step.group, group) for step in cell.steps]
        )
        batch_message_s = s_per_byte_by_step[cell.step[cuts]] * self._crossing_bytes[cuts]
        block_before_s = np.maximum(cell.block_s[cuts], 2.0 * batch_message_s)
        message_s = cell.message_s[cuts] + batch_message_s / self._all_micro_batches
        cut_indices = np.flatnonzero(block_before_s <= self._limits.bound_with_slack_s)
        # argmin takes the first of equal blocks: sort so that it has the least other time.
        cut_indices = cut_indices[
            np.argsort((message_s + cell.tail_s[cuts])[cut_indices], kind="stable")
        ]
        if not cut_indices.size:
            return None

        kept_cuts = cuts[cut_indices]
        block_before_s = block_before_s[cut_indices]
        message_s = message_s[cut_indices]
        first_end = ends[0]
        last_end = ends[-1]
        block_s = self._span_s[first_end : last_end + 1].take(kept_cuts, axis=1)
        if len(ends) < len(block_s):
            block_s = block_s[ends - first_end]
        if (devices := group.size) > 1:
            block_s /= devices
        np.maximum(block_s, block_before_s[None, :], out=block_s)
        return self._choose_cuts(cell, group, ends, kept_cuts, message_s, block_s)

    def _choose_cuts(
        self,
        cell: SearchCell,
        group: DeviceGroup,
        ends: Indices,
        cuts: Indices,
        message_s: Floats,
        block_s: Floats,
    ) -> Trial | None:
        """Choose the best cut for each end; `block_s` is ``(ends, cuts)``."""
        np = self._np
        end_indices = np.arange(len(ends))
        if self._hpgo_cluster.compute_all_reduce_s_per_byte(group) == 0.0:
            chosen_cut = block_s.argmin(axis=1)
            tail_s = cell.tail_s[cuts][chosen_cut]
        else:
            block_s = self._round_to_bound(block_s)
            tail_s_by_cut = self._compute_tails_s(cell, group, ends, cuts)
            is_least = block_s == block_s.min(axis=1)[:, None]
            chosen_cut = np.where(is_least, message_s + tail_s_by_cut, np.inf).argmin(axis=1)
            tail_s = tail_s_by_cut[end_indices, chosen_cut]
        least_block_s = block_s[end_indices, chosen_cut]
        is_within = least_block_s <= self._limits.bound_with_slack_s
        if not is_within.any():
            return None
        chosen_cut = chosen_cut[is_within]
        return Trial(
            ends[is_within],
            least_block_s[is_within],
            message_s[chosen_cut],
            tail_s[is_within],
            cuts[chosen_cut],
            cell.depth[cuts[chosen_cut]] + 1,
        )

    def _get_transfer_s_per_byte(self, source: DeviceGroup, target: DeviceGroup) -> float:
        key = source, target
        if key not in self._s_per_byte:
            self._s_per_byte[key] = self._hpgo_cluster.compute_transfer_s_per_byte(source, target)
        return self._s_per_byte[key]

    def _compute_all_reduce_s(
        self, group: DeviceGroup, ends: Indices, bytes_before: Floats
    ) -> Floats:
        """Return the seconds of a stage's all-reduce, ``(ends, cuts)``.

        Like HPGO, it counts the first state of the next stage as well.

        Args:
            group: The devices of the stage.
            ends: The possible last states.
            bytes_before: Bytes of parameters before the stage, for each cut.
        """
        model = self._model
        counted_ends = self._np.minimum(self._states[ends] + 1, model.last)
        parameter_bytes = model.parameters_so_far[counted_ends][:, None] - bytes_before[None, :]
        return self._hpgo_cluster.compute_all_reduce_s_per_byte(group) * parameter_bytes

    def _compute_tails_s(
        self, cell: SearchCell, group: DeviceGroup, ends: Indices, cuts: Indices
    ) -> Floats:
        """Return the seconds by which all-reduces outlast the pipeline, ``(ends, cuts)``."""
        bytes_before = self._model.parameters_so_far[self._states[cuts]]
        micro_batch_block_s = (
            self._limits.bound_s * self._limits.pipelines / self._all_micro_batches
        )
        hidden_s = (cell.depth[cuts] + 1) * micro_batch_block_s
        exposed_s = self._compute_all_reduce_s(group, ends, bytes_before) - hidden_s[None, :]
        return self._np.maximum(cell.tail_s[cuts][None, :], exposed_s)


def _rank_by_block_and_overhead(cell: SearchCell) -> tuple[float, float]:
    return float(cell.block_s[-1]), float(cell.message_s[-1] + cell.tail_s[-1])
