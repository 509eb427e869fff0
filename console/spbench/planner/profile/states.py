"""States of a profile: the places between which it can be cut.

State ``i`` stands for the layers up to it, and a stage is the layers from one state to another.
A chain of layers has one state a layer; a graph has one a downset, which is a set of layers that
holds the inputs of each of its own. `antichains.find_antichain_states` makes them all, as PipeDream
and HPGO do; `linear.find_linear_states` makes few.
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
    """The states of a profile in an order that its edges allow; all figures at its batch size.

    Attributes:
        profile: The profile without what the planner leaves out; see `planned`.
        names: What each state ends with.
        downsets: The layers up to each state, as a mask of the profile's layers.
        ancestors: The states that can come before each, as a mask of states.
        forward_s: Seconds of the forward pass of the layers up to each state.
        backward_s: Seconds of their backward pass.
        data_s: Seconds of it without the gradients of weights that are computed later in zb-h1.
        weights_s: Seconds of these.
        activation_bytes: The sum of their outputs.
        kept_bytes: What they keep from forward until backward.
        parameter_bytes: Their parameters.
        crossing_bytes: What a cut after each state sends on.
        skips: The outputs among them that go past states.
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

    def layers(self, start: int, end: int) -> list[int]:
        """Return the layers of a stage from state ``start`` up to ``end``, which is left out."""
        before = self.downsets[start - 1] if start else 0
        return list(iterate_bits(self.downsets[end - 1] & ~before))

    @staticmethod
    def range_sum(sums: tuple[float, ...], start: int, end: int) -> float:
        """Return what one of the sums grows by from state ``start`` up to ``end``, left out."""
        return sums[end - 1] - (sums[start - 1] if start else 0.0)

    def working_bytes(self, start: int, end: int) -> float:
        """Return what the layers of a stage need at most while one of them runs."""
        layers = self.profile.layers
        return max((layers[at].working_bytes for at in self.layers(start, end)), default=0.0)


def drop_unplanned_layers(profile: Profile) -> Profile:
    """Return a profile without what the planner leaves out, as HPGO does.

    Sources described as ``Input...`` are data and not work; sinks described as ``__getitem__...``
    are read by nobody.

    Raises:
        PlannerError: Nothing is left that takes time.
    """
    targets = {target for _, target in profile.edges}
    inputs = {
        at
        for at, layer in enumerate(profile.layers)
        if at not in targets and layer.description.startswith("Input")
    }
    left = profile.drop_layers(inputs) if inputs else profile
    sources = {source for source, _ in left.edges}
    unread = {
        at
        for at, layer in enumerate(left.layers)
        if at not in sources and layer.description.startswith("__getitem__")
    }
    return left.drop_layers(unread) if unread else left


def build_states(
    profile: Profile,
    names: Sequence[str],
    downsets: Sequence[int],
    ancestors: Sequence[int],
    crossing: Sequence[float],
    skips: Skips = NO_SKIPS,
) -> States:
    """Return states with their sums, each rounded once, so that no order of adding matters."""

    def sums(values: list[float]) -> tuple[float, ...]:
        return tuple(math.fsum(values[at] for at in members) for members in inside)

    inside = [list(iterate_bits(mask)) for mask in downsets]
    layers = profile.layers
    return States(
        profile=profile,
        names=tuple(names),
        downsets=tuple(downsets),
        ancestors=tuple(ancestors),
        forward_s=sums([layer.forward_ms / 1000.0 for layer in layers]),
        backward_s=sums([layer.backward_ms / 1000.0 for layer in layers]),
        data_s=sums([layer.parts_ms[0] / 1000.0 for layer in layers]),
        weights_s=sums([layer.parts_ms[1] / 1000.0 for layer in layers]),
        activation_bytes=sums([layer.activation_bytes for layer in layers]),
        kept_bytes=sums([layer.held_bytes for layer in layers]),
        parameter_bytes=sums([layer.parameter_bytes for layer in layers]),
        crossing_bytes=tuple(crossing),
        skips=skips,
    )
