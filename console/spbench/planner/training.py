"""Training parameters of a plan: batch sizes, optimizer and activation memory."""

from __future__ import annotations

from dataclasses import dataclass

from spbench.planner.errors import PlannerError
from spbench.planner.ranges import MAX_BATCH, MEMORIES, SCALINGS


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
