"""The memory of each stage's devices in parts, against what the devices have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench.planner.cluster.machines import Cluster
from spbench.planner.plans import Plan
from spbench.planner.simulation.step import Simulation

LEAST_VISIBLE = 0.1
"""The least part of a device's memory that is seen well in a bar of all of it."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of each device of a stage at its peak, of all stages that it has.

    Attributes:
        fixed: Parameters, and what the optimizer keeps of them.
        kept: Of all micro-batches between forward and backward.
        working: Of the pass that runs.
        capacity: The least memory of its devices; None where that of none is known.
    """

    fixed: float
    kept: float
    working: float
    capacity: float | None

    @property
    def peak(self) -> float:
        """Bytes of all parts together."""
        return self.fixed + self.kept + self.working


def compute_stage_memories(
    plan: Plan, step: Simulation, cluster: Cluster
) -> tuple[StageMemory, ...]:
    """Return the memory of each stage of a plan in one step of it."""
    found: dict[int, StageMemory] = {}
    for together in plan.stage_groups:
        stages = [plan.stages[at] for at in together]
        fixed = sum(stage.fixed_bytes for stage in stages)
        once = max(stage.once_bytes for stage in stages)
        capacity = _capacity(cluster, stages[0].devices)
        for at in together:
            found[at] = StageMemory(fixed, step.kept_bytes[at], once, capacity)
    return tuple(found[at] for at in range(len(plan.stages)))


def find_bar_limits(memories: Sequence[StageMemory]) -> tuple[list[float], bool]:
    """Return what the memory of each stage is drawn against, and whether that is the devices'.

    It is where that is known of all, and the fullest device is filled to a part that can be seen;
    else it is the memory of the stage that needs most.
    """
    known = [memory.capacity for memory in memories if memory.capacity is not None]
    most = max((memory.peak for memory in memories), default=0.0) or 1.0
    full = max((memory.peak / (memory.capacity or most) for memory in memories), default=0.0)
    if len(known) == len(memories) and full >= LEAST_VISIBLE:
        return known, True
    return [most] * len(memories), False


def _capacity(cluster: Cluster, devices: tuple[int, ...]) -> float | None:
    kinds = cluster.kinds
    known = [size for at in devices if (size := kinds[at].memory_bytes) is not None]
    return min(known, default=None)
