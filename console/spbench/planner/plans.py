"""Plans: what both searches give, and what is printed, simulated and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spbench_core.schedule.orders import Schedule
from spbench_core.schedule.timetable import DATA_SHARE

Mode = Literal["hpgo", "best"]
SkipRoute = Literal["straight", "along"]
"""The way of outputs past stages that do not read them: straight to the one that does, or along
from stage to stage."""
STRAIGHT: Final = "straight"
ALONG: Final = "along"


@dataclass(frozen=True, slots=True)
class PlanStage:
    """Consecutive states on a group of devices that share each micro-batch.

    Attributes:
        start: Its first state.
        end: The state after its last one.
        devices: By number, rising; each holds the stage's parameters.
        forward_s: Seconds of one micro-batch's forward pass, shared by the devices, with what its
            messages take of the devices' time.
        backward_s: Seconds of its backward pass likewise, recomputation included.
        send_s: Seconds until the next stage has its inputs, those of stages further up too; as
            long again for their gradients.
        all_reduce_s: Seconds in which the devices sum their gradients after a step.
        memory_bytes: Peak memory of each of its devices.
        recompute: Whether activations are computed again for the backward pass.
        overlapped_s: Seconds of the all-reduce beside the last backward pass, not after it.
        fixed_bytes: The part of the memory that parameters and optimizer take.
        held_bytes: The part that each micro-batch keeps from its forward to its backward pass.
        once_bytes: The part that one pass at a time takes.
        data_share: The share of the backward pass that computes gradients of data, where those of
            weights are computed later.
        overhead_s: The part of the forward pass, and the same of the backward pass, in which
            messages keep a device from computing.
    """

    start: int
    end: int
    devices: tuple[int, ...]
    forward_s: float
    backward_s: float
    send_s: float
    all_reduce_s: float
    memory_bytes: float
    recompute: bool = False
    overlapped_s: float = 0.0
    fixed_bytes: float = 0.0
    held_bytes: float = 0.0
    once_bytes: float = 0.0
    data_share: float = DATA_SHARE
    overhead_s: float = 0.0

    @property
    def replicas(self) -> int:
        """Devices that share each micro-batch of the stage."""
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another way to train the same, for comparison.

    Attributes:
        step_s: Seconds of a step; None where ``reason`` says why there is no such plan.
        speedup: One device's seconds for the whole batch over ``step_s``.
        stages: Of pipelines, as ``(start, end, devices)``.
    """

    name: str
    step_s: float | None
    speedup: float | None
    reason: str = ""
    stages: tuple[tuple[int, int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A parallel plan: stages, their devices and the micro-batches of one model on one cluster.

    Attributes:
        mode: The search that found it; states are numbered as that search numbers them.
        profile: The profile's name.
        cluster: The cluster's name.
        state_names: What each state ends with.
        micro_batch_size: Samples that go through a pipeline at once.
        micro_batches: How many of them go through each pipeline in a step.
        pipelines: Pipelines side by side; their devices of a stage are in one group.
        step_s: Estimated seconds of a step.
        single_s: Seconds of the whole batch on one device; its memory does not matter. In mode
            ``best`` it is the fastest device, with micro-batches or with the plan's shares of
            them, if that takes less time.
        stages: In the order of the states.
        baselines: Other ways to train the same.
        skips: The way of outputs past stages; None where there are none.
        measured_batches: The batch sizes at which the layers were measured, rising.
    """

    mode: Mode
    profile: str
    cluster: str
    state_names: tuple[str, ...]
    global_batch_size: int
    micro_batch_size: int
    micro_batches: int
    schedule: Schedule
    pipelines: int
    step_s: float
    single_s: float
    stages: tuple[PlanStage, ...]
    baselines: tuple[Baseline, ...] = ()
    skips: SkipRoute | None = None
    measured_batches: tuple[int, ...] = ()

    @property
    def speedup(self) -> float:
        """One device's seconds for the whole batch over the plan's."""
        return self.single_s / self.step_s

    @property
    def rounds(self) -> int:
        """Stages of each device; more than one in ``interleaved`` plans."""
        return len(self.stages) // len(self.stage_groups)

    @property
    def stage_groups(self) -> tuple[tuple[int, ...], ...]:
        """The stages, by index, of each group of devices."""
        found: dict[tuple[int, ...], list[int]] = {}
        for at, stage in enumerate(self.stages):
            found.setdefault(stage.devices, []).append(at)
        return tuple(map(tuple, found.values()))

    @property
    def states(self) -> int:
        """Number of states of the profile."""
        return len(self.state_names)

    def hpgo_stages(self) -> list[tuple[int, int, int, list[int]]]:
        """Return the stages as HPGO prints them: ``(start, end, n, devices)``.

        ``end`` is exclusive, and inclusive in the last stage; ``n`` counts the replicas within
        one pipeline, so that eight pipelines of one device a stage have ``n`` 1.
        """
        last = len(self.stages) - 1
        return [
            (
                stage.start,
                stage.end - (at == last),
                stage.replicas // self.pipelines,
                list(stage.devices),
            )
            for at, stage in enumerate(self.stages)
        ]


def format_span(names: Sequence[str], start: int, end: int) -> str:
    """Return the states of a stage by name: ``a to d``, or ``a``."""
    return names[start] if end == start + 1 else f"{names[start]} to {names[end - 1]}"


def format_devices(count: int) -> str:
    """Return so many devices in words: ``on 1 device``."""
    return "on 1 device" if count == 1 else f"on {count} devices"
