"""Peak memory of a stage's devices."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from spbench.planner.profile.states import States


class DeviceMemory(NamedTuple):
    """Bytes of a device: of the parameters, of each micro-batch in flight, and of one pass."""

    fixed: float
    held: float
    once: float

    def peak(self, kept: int) -> float:
        """Return the most that is in use with so many micro-batches in flight."""
        return self.fixed + kept * self.held + self.once


def peak_held_bytes(held: Sequence[float], flights: Sequence[Sequence[int]]) -> float:
    """Return the bytes that the micro-batches in flight of a device's stages take at most.

    Args:
        held: Of each micro-batch, by stage.
        flights: Micro-batches in flight by stage, in all combinations that count.
    """
    kept: float = max(sum(map(mul, counts, held)) for counts in flights)
    return kept


def compute_stage_memory(
    states: States,
    start: int,
    end: int,
    samples: float,
    optimizer_memory_scaling: float,
    recompute: bool = False,
) -> DeviceMemory:
    """Return what a device needs that holds the states from ``start`` up to ``end``.

    Parameters and what the optimizer keeps of them, what each micro-batch keeps until its
    backward pass, and what one layer needs while it runs. With recomputation a micro-batch keeps
    the stage's input only, and one of them at a time all of it.

    Args:
        states: The model.
        start: The stage's first state.
        end: The state after its last.
        samples: Samples of a micro-batch on one device; a fraction where replicas share one.
        optimizer_memory_scaling: Bytes kept for each byte of parameters.
        recompute: Whether activations are computed again for the backward pass.
    """
    share = samples / states.profile.batch_size
    whole = states.range_sum(states.kept_bytes, start, end)
    arriving = states.crossing_bytes[start - 1] if start else 0.0
    working = states.working_bytes(start, end)
    parameters = states.range_sum(states.parameter_bytes, start, end)
    return DeviceMemory(
        fixed=optimizer_memory_scaling * parameters,
        held=share * (arriving if recompute else whole),
        once=share * (working + whole if recompute else working),
    )
