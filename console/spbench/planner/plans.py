"""Training steps to plan, and plans, which both searches return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spbench.planner.errors import PlannerError
from spbench.planner.ranges import MAX_BATCH, MEMORIES, SCALINGS
from spbench_core.schedule.orders import Schedule
from spbench_core.schedule.timetable import DATA_SHARE

Mode = Literal["hpgo", "best"]
SkipRoute = Literal["straight", "along"]
"""The route of outputs past stages that do not read them: straight to the stage that does, or along
from stage to stage."""
ROUTE_STRAIGHT: Final = "straight"
ROUTE_ALONG: Final = "along"


@dataclass(frozen=True, slots=True)
class Training:
    """The parameters of one training step.

    Attributes:
        global_batch_size: Samples of a step over all devices.
        micro_batch_size: Samples that go through a pipeline at once.
        optimizer_memory_scaling: Bytes kept per byte of parameters, including them: 1 for
            parameters only, 2 with gradients, 3 with momentum, 4 with Adam's two moments.
        peak_activation_bytes: Memory of one sample when the whole model is on one device; None
            for the sum of all outputs.

    Raises:
        PlannerError: A number is invalid, or micro-batches do not divide the batch.
    """

    global_batch_size: int
    micro_batch_size: int = 1
    optimizer_memory_scaling: float = 1.0
    peak_activation_bytes: float | None = None

    def __post_init__(self) -> None:
        batch = self.global_batch_size
        micro = self.micro_batch_size
        if batch < 1 or micro < 1:
            raise PlannerError(f"the batch of {batch} in micro-batches of {micro} must be above 0")
        if batch > MAX_BATCH:
            raise PlannerError(
                f"the global batch of {batch} is too large; give at most {MAX_BATCH} samples"
            )
        if batch % micro:
            raise PlannerError(
                f"micro-batches of {micro} do not divide the global batch of {batch}"
            )
        scaling = self.optimizer_memory_scaling
        peak = self.peak_activation_bytes
        if not SCALINGS.contains(scaling):
            raise PlannerError(f"the optimizer memory scaling {scaling} must be {SCALINGS}")
        if peak is not None and not MEMORIES.contains(peak):
            raise PlannerError(f"the peak activation {peak} must be {MEMORIES}")


@dataclass(frozen=True, slots=True)
class PlanStage:
    """Consecutive states on a group of devices that share each micro-batch.

    Attributes:
        start: Its first state.
        end: The state after its last one.
        devices: By number, rising; each holds the stage's parameters.
        forward_s: Seconds of one micro-batch's forward pass, shared by the devices, including the
            time in which messages keep them from computing.
        backward_s: Seconds of its backward pass, including recomputation and messages.
        send_s: Seconds until the next stage has its inputs, also from earlier stages. Their
            gradients take as long.
        all_reduce_s: Seconds in which the devices sum their gradients after a step.
        memory_bytes: Peak memory of each of its devices.
        recompute: Whether activations are computed again for the backward pass.
        overlapped_s: Seconds of the all-reduce during the last backward pass.
        fixed_bytes: The part of the memory for parameters and optimizer.
        bytes_per_micro_batch: The part for each micro-batch from its forward to its backward pass.
        working_bytes: The part for the pass that runs.
        data_share: The share of the backward pass that computes data gradients, if weight
            gradients are computed later.
        overhead_s: The part of the forward pass, and of the backward pass, in which messages
            keep a device from computing.
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
    bytes_per_micro_batch: float = 0.0
    working_bytes: float = 0.0
    data_share: float = DATA_SHARE
    overhead_s: float = 0.0

    @property
    def device_count(self) -> int:
        """The number of devices, which share each micro-batch of the stage."""
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another way to train the model, for comparison.

    Attributes:
        step_s: Seconds of a step; None if ``reason`` explains why there is no such plan.
        speedup: Seconds of the whole batch on one device over ``step_s``.
        stages: Stages of a pipeline as ``(start, end, devices)``; empty for data parallelism.
    """

    name: str
    step_s: float | None
    speedup: float | None
    reason: str = ""
    stages: tuple[tuple[int, int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class OtherPipeline:
    """The fastest pipeline of a search with another number of stages than the plan.

    Attributes:
        step_s: Seconds of a step.
        device_counts: The devices of each of its groups, which share each micro-batch.
        stage_count: Its stages; more than the groups if each has several.
    """

    step_s: float
    device_counts: tuple[int, ...]
    stage_count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A parallel plan: the stages and micro-batches of a model on a cluster.

    Attributes:
        mode: The search that found it, which also numbered the states.
        profile: The profile's name.
        cluster: The cluster's name.
        state_names: The name of each state's last layer.
        micro_batch_size: Samples that go through a pipeline at once.
        micro_batches: Number of micro-batches through each pipeline in a step.
        pipelines: Pipelines side by side; a stage's group has the devices of all of them.
        step_s: Estimated seconds of a step.
        single_s: Seconds of the whole batch on one device, ignoring its memory. In mode
            ``best`` this is the fastest device, with micro-batches or with the plan's shares
            of them, whichever is faster.
        stages: In the order of the states.
        baselines: Other ways to train the model.
        skips: The route of outputs past stages; None if there are none.
        measured_batches: The batch sizes at which the layers were measured, rising.
        searched_count: Plans that mode ``best`` looked at; 0 in mode ``hpgo``.
        other_pipeline: The fastest pipeline among them with another number of stages.
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
    searched_count: int = 0
    other_pipeline: OtherPipeline | None = None

    @property
    def speedup(self) -> float:
        """Seconds of the whole batch on one device over those of the plan."""
        return self.single_s / self.step_s

    @property
    def rounds(self) -> int:
        """Stages per device; more than one in ``interleaved`` plans."""
        return len(self.stages) // len(self.stage_groups)

    @property
    def stage_groups(self) -> tuple[tuple[int, ...], ...]:
        """The stages, by index, of each group of devices."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, stage in enumerate(self.stages):
            groups.setdefault(stage.devices, []).append(index)
        return tuple(map(tuple, groups.values()))

    @property
    def state_count(self) -> int:
        """The number of states of the profile."""
        return len(self.state_names)

    def list_hpgo_stages(self) -> list[tuple[int, int, int, list[int]]]:
        """Return the stages in HPGO's format: ``(start, end, n, devices)``.

        ``end`` is exclusive, except in the last stage. ``n`` is the number of devices within one
        pipeline, so that eight pipelines of one device per stage have ``n`` 1.
        """
        ends = [stage.end for stage in self.stages]
        ends[-1] -= 1
        return [
            (stage.start, end, stage.device_count // self.pipelines, list(stage.devices))
            for stage, end in zip(self.stages, ends, strict=True)
        ]


def format_span(names: Sequence[str], start: int, end: int) -> str:
    """Return the names of a stage's states: ``a to d``, or ``a``."""
    return names[start] if end == start + 1 else f"{names[start]} to {names[end - 1]}"


def format_devices(count: int) -> str:
    """Return a number of devices as text: ``on 1 device``."""
    return "on 1 device" if count == 1 else f"on {count} devices"
