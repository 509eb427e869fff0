"""The memory of each stage's devices by part, and the capacity of the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spbench.planner.cluster.machines import Cluster
from spbench.planner.plans import Plan
from spbench.planner.simulation.step import Simulation


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Peak bytes of each device of a stage, for all stages of the device.

    Attributes:
        fixed_bytes: Parameters and optimizer state.
        kept_bytes: All micro-batches between forward and backward.
        working_bytes: The pass that runs.
        capacity_bytes: The least memory of its devices; None if unknown.
    """

    fixed_bytes: float
    kept_bytes: float
    working_bytes: float
    capacity_bytes: float | None

    @property
    def peak_bytes(self) -> float:
        """Sum of all parts."""
        return self.fixed_bytes + self.kept_bytes + self.working_bytes


def compute_stage_memories(
    plan: Plan, simulation: Simulation, cluster: Cluster
) -> tuple[StageMemory, ...]:
    """Return the memory of each stage of a plan in one simulated step."""
    memory_by_stage: dict[int, StageMemory] = {}
    for group in plan.stage_groups:
        stages = [plan.stages[index] for index in group]
        fixed_bytes = sum(stage.fixed_bytes for stage in stages)
        working_bytes = max(stage.working_bytes for stage in stages)
        capacity = _find_capacity(cluster, stages[0].devices)
        for index in group:
            memory_by_stage[index] = StageMemory(
                fixed_bytes, simulation.kept_bytes[index], working_bytes, capacity
            )
    return tuple(memory_by_stage[index] for index in range(len(plan.stages)))


class BarLimits(NamedTuple):
    """The bytes of each stage's full memory bar, and whether these are capacities."""

    stage_bytes: list[float]
    are_capacities: bool


def find_bar_limits(memories: Sequence[StageMemory]) -> BarLimits:
    """Return the full length of each stage's memory bar, and whether it is a capacity.

    It is the capacity if that is known for all stages, and otherwise the largest memory of any
    stage.
    """
    capacities_bytes = [
        memory.capacity_bytes for memory in memories if memory.capacity_bytes is not None
    ]
    if len(capacities_bytes) == len(memories):
        return BarLimits(capacities_bytes, True)
    largest_bytes = max((memory.peak_bytes for memory in memories), default=0.0) or 1.0
    return BarLimits([largest_bytes] * len(memories), False)


def _find_capacity(cluster: Cluster, devices: tuple[int, ...]) -> float | None:
    kinds = cluster.kinds
    sizes_bytes = [
        size_bytes for device in devices if (size_bytes := kinds[device].memory_bytes) is not None
    ]
    return min(sizes_bytes, default=None)
