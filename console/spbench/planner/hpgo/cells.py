"""Cells of HPGO's dynamic program: one for each set of devices in use and each last group."""

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
"""Blocks that differ by less than this differ by rounding."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of one search: pipelines, workers and the bound on a block.

    Attributes:
        workers: Into how many parts a pipeline's devices are dealt; a stage has one or more.
        pipelines: Pipelines side by side, each with a device for each worker.
        bound: No block above it is of interest; seconds for the whole batch.
        single: Whether each stage has one worker.
        keep: How many cells are followed at each number of workers; None for all.
        floor: Blocks below it are as good as it is.
    """

    workers: int
    pipelines: int
    bound: float
    single: bool = False
    keep: int | None = None
    floor: float = 0.0

    @property
    def limit(self) -> float:
        """The bound, and what rounding may add to it."""
        return self.bound * SLACK


class TableStep(NamedTuple):
    """A stage on a group of devices, behind those of the cell before it."""

    group: DeviceGroup
    before: SearchCell | None


class Trial(NamedTuple):
    """A stage that was tried, over the states that it may end with.

    Attributes:
        places: Those states.
        block: The least block with it.
        sent: Seconds of the messages so far, for one micro-batch.
        tail: By how much an all-reduce outlasts the pipeline.
        cut: Where the stage before ends; -1 for the first stage.
        depth: Stages before this one.
    """

    places: Indices
    block: Floats
    sent: Floats
    tail: Floats
    cut: Indices
    depth: Indices


class SearchCell:
    """The best pipelines so far for one set of devices in use and one last group, over all states.

    Args:
        used: The devices in use.
        count: How many states there are.

    Attributes:
        block: The least block by the last state, infinite where there is no split; the other
            arrays are as in `Trial`.
        step: Which of ``steps`` came to it.
    """

    def __init__(self, used: Counts, count: int) -> None:
        import numpy as np

        self._np = np
        self.used = used
        self.block = np.full(count, np.inf)
        self.sent = np.full(count, np.inf)
        self.tail = np.zeros(count)
        self.cut = np.full(count, -1, dtype=np.int64)
        self.depth = np.zeros(count, dtype=np.int64)
        self.step = np.zeros(count, dtype=np.int64)
        self.steps: list[TableStep] = []

    @property
    def ends(self) -> Indices:
        """The states with a split."""
        return self._np.flatnonzero(self._np.isfinite(self.block))

    def keep_better(self, step: TableStep, trial: Trial) -> None:
        """Keep what is better: a lesser block, or an equal one with less beside it."""
        at = trial.places
        beside = self.sent[at] + self.tail[at]
        equal = (trial.block == self.block[at]) & (trial.sent + trial.tail < beside)
        better = (trial.block < self.block[at]) | equal
        if not better.any():
            return
        at = at[better]
        self.block[at] = trial.block[better]
        self.sent[at] = trial.sent[better]
        self.tail[at] = trial.tail[better]
        self.cut[at] = trial.cut[better]
        self.depth[at] = trial.depth[better]
        self.step[at] = len(self.steps)
        self.steps.append(step)


def trace_candidate(cell: SearchCell, states: Indices, pipelines: int) -> HpgoCandidate:
    """Return the split that led to a cell's last state."""
    at = len(states) - 1
    cuts: list[int] = []
    groups: list[DeviceGroup] = []
    current: SearchCell | None = cell
    while current is not None:
        group, before = current.steps[int(current.step[at])]
        cuts.append(int(states[at]))
        groups.append(group)
        at, current = int(current.cut[at]), before
    return HpgoCandidate(tuple(cuts[::-1]), tuple(groups[::-1]), pipelines, float(cell.block[-1]))
