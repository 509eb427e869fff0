"""Peak memory of a stage's devices."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from spbench.planner.profile.states import States


class DeviceMemory(NamedTuple):
    """Bytes of a device: parameters, each micro-batch in flight, and the running pass."""

    fixed_bytes: float
    bytes_per_micro_batch: float
    working_bytes: float

    def compute_peak_bytes(self, in_flight: int) -> float:
        """Return the peak bytes with `in_flight` micro-batches in flight."""
        return self.fixed_bytes + in_flight * self.bytes_per_micro_batch + self.working_bytes


def compute_peak_kept_bytes(
    bytes_by_stage: Sequence[float], combinations: Sequence[Sequence[int]]
) -> float:
    """Return the peak bytes of the micro-batches in flight on a device.

    Args:
        bytes_by_stage: Bytes of a micro-batch, by stage of the device.
        combinations: All combinations of micro-batches in flight by stage.
    """
    peak_bytes: float = max(sum(map(mul, counts, bytes_by_stage)) for counts in combinations)
    return peak_bytes


def compute_device_memory(
    states: States,
    start: int,
    end: int,
    samples: float,
    optimizer_memory_scaling: float,
    recompute: bool = False,
) -> DeviceMemory:
    """Return the memory need of a device with the states from `start` up to `end`.

    It consists of parameters with their optimizer state, activations of each micro-batch until its
    backward pass, and working memory of one layer. With recomputation, micro-batches only keep the
    stage's input, and one at a time keeps all activations.

    Args:
        states: The model.
        start: The stage's first state.
        end: The state after its last.
        samples: Samples of a micro-batch on one device; a fraction if devices share a sample.
        optimizer_memory_scaling: Bytes kept per byte of parameters.
        recompute: Whether activations are recomputed in the backward pass.
    """
    batch_ratio = samples / states.profile.batch_size
    kept_bytes = states.sum_range(states.kept_bytes, start, end)
    input_bytes = states.crossing_bytes[start - 1] if start else 0.0
    working_bytes = states.find_working_bytes(start, end)
    parameter_bytes = states.sum_range(states.parameter_bytes, start, end)
    return DeviceMemory(
        fixed_bytes=optimizer_memory_scaling * parameter_bytes,
        bytes_per_micro_batch=batch_ratio * (input_bytes if recompute else kept_bytes),
        working_bytes=batch_ratio * (working_bytes + kept_bytes if recompute else working_bytes),
    )
