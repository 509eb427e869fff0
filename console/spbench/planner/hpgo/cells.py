"""Cells of HPGO's dynamic program, by devices in use and last group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.hpgo.costs import HpgoCandidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

SLACK = 1.0 + 1e-12
"""Blocks with a smaller ratio than this differ only by rounding."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of one search: pipelines, workers and the bound on a block.

    Attributes:
        workers: The parts into which a pipeline's devices are divided; a stage has one or more.
        pipelines: Pipelines side by side, each with one device per worker.
        bound_s: The largest block of interest, in seconds for the whole batch.
        is_one_worker_per_stage: Whether each stage has exactly one worker.
        max_cells: The number of cells to extend at each number of workers; None for all.
        min_block_s: Blocks below it count as equal to it.
    """

    workers: int
    pipelines: int
    bound_s: float
    is_one_worker_per_stage: bool = False
    max_cells: int | None = None
    min_block_s: float = 0.0

    @property
    def bound_with_slack_s(self) -> float:
        """The bound with an allowance for rounding."""
        return self.bound_s * SLACK


class TableStep(NamedTuple):
    """A stage on a group of devices, and the cell of the stages before it."""

    group: DeviceGroup
    before: SearchCell | None


class Trial(NamedTuple):
    """A stage to try; all arrays are over the states that it may end with.

    Attributes:
        ends: These states.
        block_s: The least block of the pipeline up to it, in seconds.
        message_s: Seconds of all messages so far, for one micro-batch.
        tail_s: Seconds by which an all-reduce outlasts the pipeline.
        cut: The end of the stage before; -1 for the first stage.
        depth: The number of stages before it.
    """

    ends: Indices
    block_s: Floats
    message_s: Floats
    tail_s: Floats
    cut: Indices
    depth: Indices


class SearchCell:
    """The best pipelines so far for one set of devices in use and one last group.

    Args:
        used: The devices in use.
        state_count: The number of states.

    Attributes:
        block_s: The least block by the last state; infinite if there is no split.
        message_s, tail_s, cut, depth: The fields of `Trial`, by the last state.
        step: The index in ``steps`` of the last stage.
    """

    def __init__(self, used: Counts, state_count: int) -> None:
        import numpy as np

        self._np = np
        self.used = used
        self.block_s = np.full(state_count, np.inf)
        self.message_s = np.full(state_count, np.inf)
        self.tail_s = np.zeros(state_count)
        self.cut = np.full(state_count, -1, dtype=np.int64)
        self.depth = np.zeros(state_count, dtype=np.int64)
        self.step = np.zeros(state_count, dtype=np.int64)
        self.steps: list[TableStep] = []

    @property
    def ends(self) -> Indices:
        """The states with a split."""
        return self._np.flatnonzero(self._np.isfinite(self.block_s))

    def keep_better(self, step: TableStep, trial: Trial) -> None:
        """Keep the better pipelines: smaller block, then less message and all-reduce time."""
        ends = trial.ends
        has_less_overhead = (
            trial.message_s + trial.tail_s < self.message_s[ends] + self.tail_s[ends]
        )
        is_equal_block = trial.block_s == self.block_s[ends]
        is_better = (trial.block_s < self.block_s[ends]) | (is_equal_block & has_less_overhead)
        if not is_better.any():
            return
        ends = ends[is_better]
        self.block_s[ends] = trial.block_s[is_better]
        self.message_s[ends] = trial.message_s[is_better]
        self.tail_s[ends] = trial.tail_s[is_better]
        self.cut[ends] = trial.cut[is_better]
        self.depth[ends] = trial.depth[is_better]
        self.step[ends] = len(self.steps)
        self.steps.append(step)


def trace_candidate(cell: SearchCell, states: Indices, pipelines: int) -> HpgoCandidate:
    """Return the split that led to a cell's last state."""
    index = len(states) - 1
    cuts: list[int] = []
    groups: list[DeviceGroup] = []
    current: SearchCell | None = cell
    while current is not None:
        group, before = current.steps[int(current.step[index])]
        cuts.append(int(states[index]))
        groups.append(group)
        index = int(current.cut[index])
        current = before
    return HpgoCandidate(tuple(cuts[::-1]), tuple(groups[::-1]), pipelines, float(cell.block_s[-1]))
