"""A model's states at a number of samples, as sums from the first state on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from spbench.planner.profile.graph import iterate_bits
from spbench.planner.profile.states import States

Sums = tuple[float, ...]
"""One number more than there are states: what stands before each of them, and before the end."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """A model at a number of samples; stage ``a`` to ``b`` has ``sums[b] - sums[a]``.

    Attributes:
        samples: How many.
        forward: Seconds of the forward pass on the profile's device.
        backward: Seconds of the backward pass.
        data: Seconds of it without the gradients of weights that are computed later in zb-h1.
        weights: Seconds of these.
        kept: Bytes kept from forward to backward.
        parameters: Bytes of parameters.
        crossing: Bytes that cross a cut before each state; no sums; 0 at both ends.
        working: Bytes that each state needs while it runs; no sums, one for each state.
    """

    samples: int
    forward: Sums
    backward: Sums
    data: Sums
    weights: Sums
    kept: Sums
    parameters: Sums
    crossing: Sums
    working: Sums

    @property
    def total(self) -> float:
        """Seconds of both passes of the whole model."""
        return self.forward[-1] + self.backward[-1]


def compute_work(states: States, samples: int, peak_activation_bytes: float | None) -> ModelWork:
    """Return a model at a number of samples.

    Args:
        states: The model.
        samples: How many; 0 is none of the work, but all of the parameters.
        peak_activation_bytes: What one sample of the whole model keeps and works with, where it
            is known; the layers then keep their share of it, and need nothing beside.
    """
    profile = states.profile
    scale = factor = samples / profile.batch_size
    layers = profile.layers
    forward = states.forward_s
    backward = states.backward_s
    kept = states.kept_bytes
    data = states.data_s
    weights = states.weights_s
    if profile.also and samples:  # its times are not in proportion
        factor = 1.0
        layers = profile.scale_layers(samples)
        forward = _along(states, [layer.forward_ms / 1000.0 for layer in layers])
        backward = _along(states, [layer.backward_ms / 1000.0 for layer in layers])
        data = _along(states, [layer.parts_ms[0] / 1000.0 for layer in layers])
        weights = _along(states, [layer.parts_ms[1] / 1000.0 for layer in layers])
        kept = _along(states, [layer.held_bytes for layer in layers])
    needed = [
        max((layers[at].working_bytes for at in iterate_bits(new)), default=0.0)
        for new in _added(states)
    ]
    spared = factor
    if peak_activation_bytes is not None and kept[-1]:
        spared = peak_activation_bytes * samples / kept[-1]
        needed = [0.0] * len(states)
    return ModelWork(
        samples,
        _scaled(forward, factor),
        _scaled(backward, factor),
        _scaled(data, factor),
        _scaled(weights, factor),
        _scaled(kept, spared),
        (0.0, *states.parameter_bytes),
        (0.0, *(scale * count for count in states.crossing_bytes[:-1]), 0.0),
        tuple(factor * count for count in needed),
    )


def _scaled(sums: Sums, factor: float) -> Sums:
    return (0.0, *(factor * value for value in sums))


def _added(states: States) -> list[int]:
    """Return the layers that each state adds to the one before it."""
    return [after & ~before for before, after in pairwise((0, *states.downsets))]


def _along(states: States, values: list[float]) -> Sums:
    """Return the sums of the layers' values up to each state."""
    return tuple(math.fsum(values[at] for at in iterate_bits(mask)) for mask in states.downsets)
