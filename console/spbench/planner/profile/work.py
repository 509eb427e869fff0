"""The work of a model at a number of samples, as cumulative sums over its states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from spbench.planner.profile.graph import iterate_bits
from spbench.planner.profile.states import States

BoundarySums = tuple[float, ...]
"""One number more than there are states: the sum before each state, and the total."""
StateSums = tuple[float, ...]
"""One number for each state: the sum up to its end."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """A model at a number of samples; stage ``a`` to ``b`` has ``sums[b] - sums[a]``.

    Attributes:
        samples: The number of samples.
        forward_s: Seconds of the forward pass on the profile's device.
        backward_s: Seconds of the backward pass.
        data_s: Seconds of it without the weight gradients that zb-h1 computes later.
        weights_s: Seconds of these weight gradients.
        kept_bytes: Bytes kept from forward to backward.
        parameter_bytes: Bytes of parameters.
        crossing_bytes: Bytes that cross a cut before each state; not sums; 0 at both ends.
        working_bytes: Bytes that each state needs while it runs; not sums; one for each state.
    """

    samples: int
    forward_s: BoundarySums
    backward_s: BoundarySums
    data_s: BoundarySums
    weights_s: BoundarySums
    kept_bytes: BoundarySums
    parameter_bytes: BoundarySums
    crossing_bytes: tuple[float, ...]
    working_bytes: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """Seconds of both passes of the whole model."""
        return self.forward_s[-1] + self.backward_s[-1]


def compute_work(states: States, samples: int, peak_activation_bytes: float | None) -> ModelWork:
    """Return the work of a model at a number of samples.

    Args:
        states: The model.
        samples: Number of samples; 0 has no work, but all parameters.
        peak_activation_bytes: Memory that one sample of the whole model keeps and works with, if
            known. Each layer then keeps its share of it, and needs no further working memory.
    """
    profile = states.profile
    batch_ratio = sums_ratio = samples / profile.batch_size
    layers = profile.layers
    forward_s = states.forward_s
    backward_s = states.backward_s
    kept_bytes = states.kept_bytes
    data_s = states.data_s
    weights_s = states.weights_s
    if profile.further_measurements and samples:
        # With several measurements, times are not in proportion to the samples.
        sums_ratio = 1.0
        layers = profile.scale_layers(samples)
        forward_s = _sum_by_state(states, [layer.forward_ms / 1000.0 for layer in layers])
        backward_s = _sum_by_state(states, [layer.backward_ms / 1000.0 for layer in layers])
        data_s = _sum_by_state(states, [layer.data_and_weights_ms[0] / 1000.0 for layer in layers])
        weights_s = _sum_by_state(
            states, [layer.data_and_weights_ms[1] / 1000.0 for layer in layers]
        )
        kept_bytes = _sum_by_state(states, [layer.kept_or_output_bytes for layer in layers])

    new_layers = (
        downset & ~downset_before for downset_before, downset in pairwise((0, *states.downsets))
    )
    working_bytes = [
        max((layers[index].working_bytes for index in iterate_bits(mask)), default=0.0)
        for mask in new_layers
    ]
    kept_ratio = sums_ratio
    if peak_activation_bytes is not None and kept_bytes[-1]:
        kept_ratio = peak_activation_bytes * samples / kept_bytes[-1]
        working_bytes = [0.0] * len(states)
    return ModelWork(
        samples,
        _scale_sums(forward_s, sums_ratio),
        _scale_sums(backward_s, sums_ratio),
        _scale_sums(data_s, sums_ratio),
        _scale_sums(weights_s, sums_ratio),
        _scale_sums(kept_bytes, kept_ratio),
        (0.0, *states.parameter_bytes),
        (0.0, *(batch_ratio * count for count in states.crossing_bytes[:-1]), 0.0),
        tuple(sums_ratio * count for count in working_bytes),
    )


def _scale_sums(sums: StateSums, ratio: float) -> BoundarySums:
    return (0.0, *(ratio * state_sum for state_sum in sums))


def _sum_by_state(states: States, number_by_layer: list[float]) -> StateSums:
    """Return the sums of the layers' values up to each state."""
    return tuple(
        math.fsum(number_by_layer[index] for index in iterate_bits(mask))
        for mask in states.downsets
    )
