"""States of a profile: the positions at which it can be cut.

State ``i`` is the layers up to it, and a stage is the layers from one state to another. A chain has
one state per layer. A graph has one per downset, which is a set of layers that contains the inputs
of all its layers. `antichains.find_antichain_states` returns all states, like PipeDream and HPGO;
`linear.find_linear_states` returns few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spbench.planner.profile.graph import iterate_bits
from spbench.planner.profile.layers import Profile
from spbench.planner.profile.skips import NO_SKIPS, Skips


@dataclass(frozen=True, slots=True)
class States:
    """The states of a profile in topological order, at the profile's batch size.

    All sums are over the layers up to each state.

    Attributes:
        profile: The profile without the layers that are not planned; see `drop_unplanned_layers`.
        names: The name of each state's last layer.
        downsets: Masks of the layers up to each state.
        ancestors: Masks of the states that can come before each.
        forward_s: Seconds of the forward pass.
        backward_s: Seconds of the backward pass.
        data_s: Seconds of it without the weight gradients that zb-h1 computes later.
        weights_s: Seconds of these weight gradients.
        activation_bytes: Bytes of outputs.
        kept_bytes: Bytes kept from forward to backward.
        parameter_bytes: Bytes of parameters.
        crossing_bytes: Bytes that cross a cut after each state; not sums.
        skips: The outputs that pass states.
    """

    profile: Profile
    names: tuple[str, ...]
    downsets: tuple[int, ...]
    ancestors: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    data_s: tuple[float, ...]
    weights_s: tuple[float, ...]
    activation_bytes: tuple[float, ...]
    kept_bytes: tuple[float, ...]
    parameter_bytes: tuple[float, ...]
    crossing_bytes: tuple[float, ...]
    skips: Skips = NO_SKIPS

    def __len__(self) -> int:
        return len(self.names)

    def list_layers(self, start: int, end: int) -> list[int]:
        """Return the layers of a stage from state `start` up to `end`, exclusive."""
        before = self.downsets[start - 1] if start else 0
        return list(iterate_bits(self.downsets[end - 1] & ~before))

    @staticmethod
    def sum_range(sums: tuple[float, ...], start: int, end: int) -> float:
        """Return the part of one of the sums from state `start` up to `end`, exclusive."""
        return sums[end - 1] - (sums[start - 1] if start else 0.0)

    def find_working_bytes(self, start: int, end: int) -> float:
        """Return the most bytes that one layer of a stage needs while it runs."""
        layers = self.profile.layers
        working = (layers[index].working_bytes for index in self.list_layers(start, end))
        return max(working, default=0.0)


def drop_unplanned_layers(profile: Profile) -> Profile:
    """Return a profile without the layers that HPGO leaves out.

    Sources described as ``Input...`` are data and not work; sinks described as ``__getitem__...``
    are not read.

    Raises:
        PlannerError: No layer that takes time is left.
    """
    targets = {target for _, target in profile.edges}
    inputs = {
        index
        for index, layer in enumerate(profile.layers)
        if index not in targets and layer.description.startswith("Input")
    }
    planned = profile.drop_layers(inputs) if inputs else profile
    sources = {source for source, _ in planned.edges}
    unread = {
        index
        for index, layer in enumerate(planned.layers)
        if index not in sources and layer.description.startswith("__getitem__")
    }
    return planned.drop_layers(unread) if unread else planned


def build_states(
    profile: Profile,
    names: Sequence[str],
    downsets: Sequence[int],
    ancestors: Sequence[int],
    crossing: Sequence[float],
    skips: Skips = NO_SKIPS,
) -> States:
    """Return states with their sums, each rounded once and independent of layer order."""

    def sums(numbers: list[float]) -> tuple[float, ...]:
        return tuple(math.fsum(numbers[index] for index in members) for members in members_by_state)

    members_by_state = [list(iterate_bits(mask)) for mask in downsets]
    layers = profile.layers
    return States(
        profile=profile,
        names=tuple(names),
        downsets=tuple(downsets),
        ancestors=tuple(ancestors),
        forward_s=sums([layer.forward_ms / 1000.0 for layer in layers]),
        backward_s=sums([layer.backward_ms / 1000.0 for layer in layers]),
        data_s=sums([layer.data_and_weights_ms[0] / 1000.0 for layer in layers]),
        weights_s=sums([layer.data_and_weights_ms[1] / 1000.0 for layer in layers]),
        activation_bytes=sums([layer.activation_bytes for layer in layers]),
        kept_bytes=sums([layer.kept_or_output_bytes for layer in layers]),
        parameter_bytes=sums([layer.parameter_bytes for layer in layers]),
        crossing_bytes=tuple(crossing),
        skips=skips,
    )
